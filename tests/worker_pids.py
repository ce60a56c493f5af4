"""The worker processes of a reward pool, for tests that kill them or look whether they were replaced."""

from __future__ import annotations

from rlcore.rewards.pool import RewardPool
from rlcore.rewards.worker_process import WorkerState

__all__ = ["worker_pids"]


def worker_pids(pool: RewardPool) -> list[int]:
    """Process ids of the workers alive now."""
    found: list[int] = []
    for dispatcher in pool._dispatchers:
        with dispatcher._lock:
            found += [worker.pid for worker in dispatcher._workers if worker.state is not WorkerState.RETIRING]
    return found
