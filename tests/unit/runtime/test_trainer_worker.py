"""A trainer rank as a worker: where the ranks can meet, and who hears of a transfer that failed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.schedule_service import BatchOrder
from rlcore_plugin_workers.trainer_worker import TrainerWorker

from rlcore.contracts.errors import ConfigError, WeightsError
from rlcore.contracts.group_outlines import outline_of
from rlcore.contracts.types import Group, Score
from rlcore.learning.shares import StepShares
from rlcore.roles.consumer import SharePlan
from rlcore.schedule import TrainOrder
from rlcore.testing import RunTester, make_plan, make_rollout

SECONDS = 20.0
BROKEN = """
import threading

from rlcore.api import WeightsError, WeightTransferSpec, hookimpl
from rlcore_plugin_workers.background import BackgroundPublisher
from rlcore.api.weights import WeightTransfer

rlcore_api = "2.0"


class BrokenPublisher(BackgroundPublisher):
    def __init__(self, deadline, bucket_bytes, on_failure):
        self._changed = threading.Condition()
        super().__init__(deadline, bucket_bytes, on_failure)

    def address(self):
        return None

    def _send(self, held):
        raise WeightsError(f"version {held.layout.version} went nowhere")

    def _free(self): ...


class BrokenTransfer(WeightTransfer):
    def publisher(self, *, deadline, bucket_bytes, device="cpu", on_failure=None):
        return BrokenPublisher(deadline, bucket_bytes, on_failure)

    def receiver(self, *, name, address, deadline, on_news):
        raise AssertionError("nobody receives here")


@hookimpl
def rlcore_register_weight_transfers():
    return [WeightTransferSpec(name="broken", target="rlcore_plugin_broken:BrokenTransfer", summary="Sends nothing", reach="cluster")]
"""


def host() -> TrainerWorker:
    return TrainerWorker(None, 0, "127.0.0.1", "cpu")  # type: ignore[arg-type]


def test_a_port_that_is_taken_is_refused_by_its_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"--master_port {port} cannot be used on .* \(Address already in use\); type another"):
            host().rendezvous(port)
    assert host().rendezvous(port).endswith(f":{port}")


def test_where_none_is_asked_for_a_free_one_is_taken() -> None:
    address, _, port = host().rendezvous(None).rpartition(":")
    assert address == "tcp://127.0.0.1"
    assert int(port) > 0


@pytest.fixture
def rank_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrainerWorker]:
    """Rank 0 of a run on fakes, whose weights go nowhere."""
    tester = RunTester(tmp_path).with_fakes()
    tester.plugins.install("broken", BROKEN)
    monkeypatch.chdir(tmp_path)
    with tester.plugins:
        made = TrainerWorker(PlanBundle.of(make_plan(tester.fake_run(), runtime="ray", transport="broken"), {}), 0, "127.0.0.1", "cpu")
        made.prepare(6, "")
        yield made
        made.close()


def test_a_transfer_that_fails_in_the_background_ends_its_life(rank_0: TrainerWorker) -> None:
    """It may never publish again: without weights nobody makes what it would train on."""

    ended: Future[str] = Future()

    def live() -> None:
        try:
            rank_0.lifetime()
        except WeightsError as error:
            ended.set_result(str(error))

    threading.Thread(target=live, daemon=True).start()
    rank_0.start(None, None)
    assert ended.result(SECONDS) == "version 0 went nowhere"


def test_why_a_producer_was_ended_is_told_once_with_its_death(rank_0: TrainerWorker) -> None:
    said = [f"producer {name} (process 7) took nothing, so it was ended" for name in ("producer-1", "producer-1.1", "producer-12")]
    assert rank_0._publisher is not None
    for one in said:
        rank_0._publisher.on_drop(one)
    assert rank_0.producer_left("producer-1") == said[0]
    assert rank_0.producer_left("producer-1") == ""
    assert rank_0._take_notes() == tuple(said[1:])


def test_producers_to_end_are_named_one_after_the_other_until_it_closes(rank_0: TrainerWorker) -> None:
    assert rank_0._publisher is not None
    for name in ("producer-1", "producer-0"):
        rank_0._publisher.on_end(name)
    assert [rank_0.producer_to_end(), rank_0.producer_to_end()] == ["producer-1", "producer-0"]
    rank_0.close()
    assert rank_0.producer_to_end() is None


@pytest.mark.parametrize(("place", "needed"), [(0, (8, 7)), (1, (8,))])
def test_the_sequence_that_all_probe_with_is_known_to_somebody(place: int, needed: tuple[int, ...]) -> None:
    """Also if no rank computes on its group."""
    rank = host()
    plan = SharePlan(shares=StepShares(scored=None, steps=[]), groups=(1,), unassigned=(0,))
    rank._consumer = SimpleNamespace(plan=lambda *batch: plan, data_parallel=(place, 2))  # type: ignore[assignment]
    groups = [
        Group(prompt_id=f"p{n}", episode=0, prompt_index=n, rollouts=(make_rollout([1, 2], [3, 4]),), scores=(Score(value=1.0),))
        for n in range(2)
    ]
    order = BatchOrder(order=TrainOrder(version=0, lease_ids=(7, 8), versions=(0, 0)), stores={"s": (7, 8)}, filtering={})
    assert rank.share_out(order, {7: outline_of(groups[0]), 8: outline_of(groups[1])}).leases == needed
