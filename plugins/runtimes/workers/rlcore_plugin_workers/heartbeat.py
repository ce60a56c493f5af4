"""Heartbeats: whether the processes of a run still answer. Only the driver asks and decides, since a stopped process cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rlcore.api import RunError
from rlcore.api.runtime import ScheduleSection, WorkerLostError
from rlcore_plugin_workers.driver_loop import answered
from rlcore_plugin_workers.workers import Worker, WorkerDiedError

__all__ = ["Deadlines", "HeartbeatTimeoutError", "watch_heartbeat"]

_ASKED_EVERY = 0.2
"""The pause between two questions, as a share of the deadline. The answer may take the rest, so silence is noticed within the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """The deadlines of the driver, in seconds.

    ``engine_seconds``: for one answer of an engine. ``load_seconds``: for loading a model. ``weights_seconds``: for a producer to serve
    weights. ``silence_seconds``: for an answer of a process. ``lease_seconds``: for a group of a producer that has prompts.
    ``trainer_seconds``: for an update or a checkpoint. ``restarts``: the number of consecutive failures of a producer, without a group
    between them, that the run tolerates.
    """

    restarts: int
    engine_seconds: float
    load_seconds: float
    weights_seconds: float
    silence_seconds: float = 60.0
    lease_seconds: float = 3600.0
    trainer_seconds: float = 3600.0

    @classmethod
    def of(cls, schedule: ScheduleSection, weights_seconds: float) -> Deadlines:
        """Return the deadlines of a run's configuration."""
        return cls(
            restarts=schedule.producer_restarts,
            engine_seconds=schedule.producer_deadline,
            load_seconds=schedule.producer_load_deadline,
            weights_seconds=weights_seconds,
            silence_seconds=schedule.heartbeat_deadline,
            lease_seconds=schedule.lease_deadline,
            trainer_seconds=schedule.trainer_deadline,
        )

    async def while_loading(self, names: Sequence[str], calls: Sequence[Future[Any]]) -> None:
        """Return when all calls are answered. Raise WorkerLostError for those that have not loaded at the deadline: they are stopped, or
        hang."""
        await asyncio.wait([answered(call) for call in calls], timeout=self.load_seconds)
        if open_ones := [name for name, call in zip(names, calls, strict=True) if not call.done()]:
            raise WorkerLostError(
                f"{', '.join(open_ones)} did not load within {self.load_seconds:g} s; check whether its process is stopped or "
                "overloaded, or raise --producer-load-deadline"
            )


class HeartbeatTimeoutError(RunError):
    """A worker has not answered before the deadline."""


async def watch_heartbeat(worker: Worker, seconds: float) -> None:
    """Ask ``worker`` from time to time to answer ``lives``; raise HeartbeatTimeoutError if an answer is late. A death counts as an
    answer: other tasks that wait for the worker report it."""
    pause = _ASKED_EVERY * seconds
    while True:
        answer = answered(worker.call("lives", beside=True))
        await asyncio.sleep(pause)
        while not answer.done():
            due = asyncio.get_running_loop().time() + seconds - 2 * pause
            await asyncio.wait([answer], timeout=seconds - 2 * pause)
            late = asyncio.get_running_loop().time() - due
            # If the wait ended much later than planned, the driver itself was stopped, and answers may not have been read yet.
            if not answer.done() and late <= pause:
                raise HeartbeatTimeoutError(f"its process has not answered for {seconds:g} s")
        if (error := answer.exception()) is not None and not isinstance(error, WorkerDiedError):
            raise error
