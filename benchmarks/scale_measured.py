"""What `make bench-scale-paper ARGS=--measure` measures on this machine, and keeps in benchmarks/results/scale.json: the sizes and seconds
of one group, one rollout and one call, from which the page on scale is computed."""

from __future__ import annotations

import pickle
import random
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CALLS", "MeasuredParts", "measured_parts", "one_group", "with_ray"]

PROMPT_TOKENS, RESPONSE_TOKENS, ROLLOUTS = 512, 2048, 16
"""Those of the default workload of `rlcore plan`."""
LETTERS_A_TOKEN = 4
_LETTERS = "etaoinshrdlu     \n"
_REPEATS = 25
GROUPS, CALLS = 8000, 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredParts:
    """Of a rollout of 512 and 2048 tokens: ``rollout_bytes`` on its way to a rank, ``unpack_seconds`` there, ``log_bytes`` in the rollout
    log, ``log_seconds`` to write it. Of a group: ``metadata_bytes`` that pass the coordinator. A second: ``groups`` through the coordinator
    one by one and ``groups_by_128``; ``calls`` of the driver."""

    rollout_bytes: float
    unpack_seconds: float
    log_bytes: float
    log_seconds: float
    metadata_bytes: float
    groups: float
    groups_by_128: float
    calls: float


def measured_parts() -> dict[str, float]:
    """Everything; starts a Ray of this machine for half a minute."""
    group = one_group()
    groups, by_128, calls = with_ray()
    return asdict(
        MeasuredParts(
            **_travelling(group), **_logged(group), metadata_bytes=metadata_bytes(), groups=groups, groups_by_128=by_128, calls=calls
        )
    )


def one_group() -> Any:
    """A group of the default workload: tokens and letters are random."""
    from rlcore.contracts.types import FinishReason, Group, Rollout, Score, Segment

    drawn, letters = np.random.default_rng(0), random.Random(0)

    def rollout(index: int) -> Rollout:
        tokens = drawn.integers(0, 150_000, RESPONSE_TOKENS)
        segment = Segment(
            context_ids=drawn.integers(0, 150_000, PROMPT_TOKENS),
            token_ids=tokens,
            logprobs=-drawn.random(RESPONSE_TOKENS),
            versions=np.full(RESPONSE_TOKENS, 3),
            policy_mask=np.ones(RESPONSE_TOKENS, bool),
        )
        text = "".join(letters.choices(_LETTERS, k=LETTERS_A_TOKEN * RESPONSE_TOKENS))
        return Rollout(prompt_id="0123456789abcdef", index=index, segments=(segment,), text=text, finish=FinishReason.STOP)

    rollouts = tuple(rollout(index) for index in range(ROLLOUTS))
    return Group(prompt_id="0123456789abcdef", episode=0, prompt_index=0, rollouts=rollouts, scores=(Score(value=1.0),) * ROLLOUTS)


def _travelling(group: Any) -> dict[str, float]:
    beside: list[pickle.PickleBuffer] = []
    packed = pickle.dumps(group, protocol=5, buffer_callback=beside.append)
    size = len(packed) + sum(buffer.raw().nbytes for buffer in beside)
    seconds = _quickest(lambda: pickle.loads(packed, buffers=[memoryview(bytes(buffer)) for buffer in beside]))
    return {"rollout_bytes": size / ROLLOUTS, "unpack_seconds": seconds / ROLLOUTS}


def _logged(group: Any) -> dict[str, float]:
    from rlcore.runlog.folder import RunFolder
    from rlcore.runtime.batch_report import Batch, rollout_rows

    batch = Batch(groups=(group,), masked=frozenset(), version=3)
    prompt = "x" * (LETTERS_A_TOKEN * PROMPT_TOKENS)
    with tempfile.TemporaryDirectory(prefix="rlcore-bench-") as name:
        folder = RunFolder.at(Path(name), save_dir=None, eval_save_dir=None, rollout_save_dir=None)

        def write() -> None:
            folder.write_rollouts(1, ({**row, "prompt": prompt} for row in rollout_rows(batch)), float("inf"))

        seconds = _quickest(write)
        size = sum(file.stat().st_size for file in folder.rollouts.iterdir())
    return {"log_bytes": size / ROLLOUTS, "log_seconds": seconds / ROLLOUTS}


def metadata_bytes() -> float:
    """Of a group: its lease, what is told of it, and the verdict."""
    from rlcore.schedule import Coordinator, Delivery, GroupSummary, ScheduleSettings

    coordinator = Coordinator(ScheduleSettings(prompts=1000, train_batch_size=8, n_sampled=ROLLOUTS, buffer_limit=16))
    lease = coordinator.lease("producer-1000", 1)[0]
    delivery = Delivery(lease_id=lease.lease_id, version=0, accuracy=0.5)
    arrival = GroupSummary(delivery=delivery, prompt_id="0123456789abcdef", tokens=ROLLOUTS * RESPONSE_TOKENS)
    return float(sum(len(pickle.dumps([one])) for one in (lease, arrival, coordinator.deliver([delivery])[0])))


def with_ray() -> tuple[float, float, float]:
    """Groups a second through the coordinator's actor, one a call and 128; calls a second that a driver makes and hears the answers of."""
    import os

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from rlcore_plugin_ray.ray_worker import RayService

    from benchmarks.coordinator import CHUNK, CLIENTS, groups_per_second

    class Answering:
        async def lives(self) -> None:
            """Answer."""

    ray.init("local", include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        one_by_one, by_128 = (groups_per_second(count, CLIENTS, chunk) for count, chunk in ((GROUPS, 1), (5 * GROUPS, CHUNK)))
        service = RayService(ray.remote(Answering).options(num_cpus=0, max_concurrency=10_000).remote(), "a service")
        service.call("lives").result()
        began = time.perf_counter()
        for answer in [service.call("lives") for _ in range(CALLS)]:
            answer.result()
        return one_by_one, by_128, CALLS / (time.perf_counter() - began)
    finally:
        ray.shutdown()


def _quickest(work: Any) -> float:
    """Seconds, the best of some."""
    best = float("inf")
    for _ in range(_REPEATS):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best
