"""Where finished tasks wait for whoever polls."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from rlcore.contracts.types import Outcome, Score
from rlcore.rewards.protocol import Task

__all__ = ["Result", "ResultInbox"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished task. ``scores`` one per item (none for a check: its ``complaint`` is the reason or None); ``seconds`` in the reward;
    ``failure``: the outcome where there is no verdict; ``trace``: the traceback of an exception that is the reward's own fault."""

    task: Task
    scores: tuple[Score, ...] = ()
    complaint: str | None = None
    seconds: float = 0.0
    failure: Outcome | None = None
    trace: str = ""


class ResultInbox:
    """Results, handed from the dispatcher's thread to pollers. ``fatal`` is why no more will come, "" while they will; ``nudges`` counts
    how often the pollers were woken for news from elsewhere."""

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._changed = threading.Condition()
        self.nudges = 0
        self.fatal = ""

    def put(self, results: Iterable[Result]) -> None:
        """Add some and wake the pollers."""
        with self._changed:
            self._results.extend(results)
            self._changed.notify_all()

    def fail(self, reason: str) -> None:
        """Nothing more will come: pollers learn why."""
        with self._changed:
            self.fatal = self.fatal or reason
            self._changed.notify_all()

    def nudge(self) -> None:
        """Wake the pollers, who find nothing here."""
        with self._changed:
            self.nudges += 1
            self._changed.notify_all()

    def take(self, timeout: float, seen: int | None = None) -> list[Result]:
        """All results; waits up to ``timeout`` seconds for the first. ``seen``: ``nudges`` before the caller looked elsewhere, so that one
        given since then is not slept through."""
        with self._changed:
            before = self.nudges if seen is None else seen
            self._changed.wait_for(lambda: self._results or self.fatal or self.nudges != before, timeout=max(0.0, timeout))
            results, self._results = self._results, []
            return results
