"""Whether the processes of a run still answer. The driver asks and the driver judges: a process that is stopped judges nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rlcore.api import RunError
from rlcore.api.runtime import ScheduleSection, WorkerLostError
from rlcore_plugin_workers.driver_inbox import DriverInbox
from rlcore_plugin_workers.workers import Worker, WorkerDiedError

__all__ = ["Heartbeats", "Patience"]

_ASKED_EVERY = 0.2
"""Between two questions, as a share of the deadline; the answer has the rest of it, so that silence is noticed within the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the driver waits for whom, in seconds: for one answer of an engine; for a model to be loaded; for a producer to serve
    weights; for an answer of a process; for a group of a producer that has prompts; for an update or a checkpoint. ``restarts``: failures
    of a producer in a row, without a group in between."""

    restarts: int
    engine_seconds: float
    load_seconds: float
    weights_seconds: float
    silence_seconds: float = 60.0
    lease_seconds: float = 3600.0
    trainer_seconds: float = 3600.0

    @classmethod
    def of(cls, schedule: ScheduleSection, weights_seconds: float) -> Patience:
        """As a run is configured."""
        return cls(
            restarts=schedule.producer_restarts,
            engine_seconds=schedule.producer_deadline,
            load_seconds=schedule.producer_load_deadline,
            weights_seconds=weights_seconds,
            silence_seconds=schedule.heartbeat_deadline,
            lease_seconds=schedule.lease_deadline,
            trainer_seconds=schedule.trainer_deadline,
        )

    def while_loading(self, inbox: DriverInbox, names: Sequence[str], calls: Sequence[Future[Any]]) -> None:
        """Raise WorkerLostError, in the inbox, for those who have not loaded at the deadline: they are stopped, or hang."""

        def late() -> None:
            if open_ones := [name for name, call in zip(names, calls, strict=True) if not call.done()]:
                raise WorkerLostError(
                    f"{', '.join(open_ones)} was not loaded after {self.load_seconds:g} s: look whether its process is stopped or "
                    "overloaded, or raise --producer-load-deadline"
                )

        inbox.after(self.load_seconds, late)


class Heartbeats:
    """Asks workers from time to time to answer ``lives``. For the driver's thread."""

    def __init__(self, inbox: DriverInbox, seconds: float) -> None:
        """``seconds``: the deadline, from the moment a process stops answering until it counts as dead."""
        self._inbox = inbox
        self._seconds = seconds
        self._pause = _ASKED_EVERY * seconds

    def watch(self, worker: Worker, wanted: Callable[[], bool], silent: Callable[[RunError], object]) -> None:
        """Ask ``worker`` for as long as ``wanted()`` is true; call ``silent(error)`` once if it does not answer in time. A death is an
        answer: whoever waits for the worker hears of it."""
        heard: list[bool] = []

        def again() -> None:
            if heard:
                self.watch(worker, wanted, silent)
            else:
                self._after(self._seconds - 2 * self._pause, judge, again)

        def judge() -> None:
            if heard or not wanted():
                again()
            else:
                silent(RunError(f"its process has not answered for {self._seconds:g} s"))

        def answered(value: object, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, WorkerDiedError):
                raise error
            heard.append(True)

        if wanted():
            self._inbox.watch(worker.call("lives", beside=True), answered)
            self._after(self._pause, again, again)

    def _after(self, seconds: float, act: Callable[[], object], late: Callable[[], object]) -> None:
        """``act`` after so many seconds, or ``late`` if the driver comes to it much later: it was stopped itself, and answers that were
        sent meanwhile may not have been read yet."""
        due = time.monotonic() + seconds
        self._inbox.after(seconds, lambda: (act if time.monotonic() - due <= self._pause else late)())
