"""The orders of vLLM's own transfer as a server of vLLM gets them by HTTP. The line is recorded: no server, no NCCL, no GPU."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore_plugin_serving import rlcore_check_run
from rlcore_plugin_serving.joined_transfer import FINISH, INIT, START, UPDATE
from rlcore_plugin_serving.vllm_dialect import VllmServer


class RecordedLine:
    """Answers as the endpoints of vllm/entrypoints/rl/online/api_router.py of 0.32 do, and keeps what it was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    async def order(self, method: str, path: str, body: Any = None, *, params: Any = None, tries: int = 5) -> Any:
        self.sent.append((path, body))
        assert path not in (f"/{word}" for word in (INIT, START, UPDATE, FINISH)) or tries == 1, "a collective is sent once"
        return {"/get_world_size": {"world_size": 4}, "/weight_checker": {"checksums": {"head": "1f"}}}.get(path, {"message": "done"})


def test_orders_go_to_the_endpoints_of_their_names_and_the_last_one_names_the_version() -> None:
    line = RecordedLine()
    server = VllmServer(line)  # type: ignore[arg-type]

    async def update() -> None:
        assert await server.ranks() == 4
        told = {"init_info": {"master_address": "10.0.0.1", "rank_offset": 1, "backend": "nccl"}}
        await server.carry_out(INIT, told, "unfinished")
        await server.carry_out(START, {}, "rlcore-1-7")
        await server.carry_out(UPDATE, {"update_info": {"names": ["head"]}}, "rlcore-1-7")
        await server.carry_out(FINISH, {}, "rlcore-1-7")
        assert await server.carry_out("compute_weight_checksums", {}, "rlcore-1-7") == [{"head": "1f"}]

    asyncio.run(update())
    assert line.sent == [
        ("/get_world_size", None),
        ("/init_weight_transfer_engine", {"init_info": {"master_address": "10.0.0.1", "rank_offset": 1}}),
        ("/update_weight_version", {"new_version": "unfinished-rlcore-1-7"}),
        ("/start_weight_update", {}),
        ("/update_weights", {"update_info": {"names": ["head"]}}),
        ("/finish_weight_update", {"weight_version": "rlcore-1-7"}),
        ("/weight_checker", {"action": "checksum"}),
    ]


def run_of(transport: str, producers: int, **options: Any) -> Any:
    inference = SimpleNamespace(name="endpoint", num_inferencer=producers, options=options)
    data = SimpleNamespace(sources=("train.jsonl",))
    return SimpleNamespace(data=data, inference=inference, weights=SimpleNamespace(transport=transport))


@pytest.mark.parametrize(
    ("transport", "producers", "servers", "said"),
    [
        ("vllm_nccl", 2, 2, ""),
        ("vllm_nccl", 1, 2, "--transport vllm_nccl sends to one server per producer"),
        ("auto", 1, 1, "inference.options.shared_folder is not set"),
    ],
)
def test_only_weights_through_a_folder_need_one(transport: str, producers: int, servers: int, said: str) -> None:
    found = rlcore_check_run(run_of(transport, producers, addresses=[f"http://host:{port}" for port in range(servers)]))
    assert [one[: len(said)] for one in found] == ([said] if said else [])
