"""Tasks that wait for workers, and results that wait for pollers. Does not know about processes.

A task may be in several places at once: if a slow task delays a job, the tasks behind it are also offered in the queue. The first answer
counts; later ones are dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlcore.contracts.types import Outcome, Score
from rlcore.rewards.worker_protocol import Task

__all__ = ["QueuedTask", "Result", "ResultInbox", "TaskQueue"]

_JOB = 16  # most tasks sent to a worker at once: enough to hide the round trip
_JOB_SECONDS = 0.02  # seconds that they may take together, so that few tasks wait behind one that hangs
_MEMORY = 0.02  # weight of the newest task in the mean duration


@dataclass(slots=True, eq=False)
class QueuedTask:
    """A task in flight. ``copies`` counts the places that hold it (queue and jobs). ``retried``: the next attempt is its last."""

    task: Task
    payload: bytes
    retried: bool = False
    copies: int = 1
    closed: bool = False


class TaskQueue:
    """A queue that ``workers`` workers share. Not thread-safe: its owner holds a lock."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._waiting: deque[QueuedTask] = deque()
        self._mean: float | None = None

    def extend(self, items: Iterable[QueuedTask]) -> None:
        """Add new tasks at the end."""
        self._waiting.extend(items)

    def cancel(self, task_ids: set[int], running: Iterable[QueuedTask]) -> None:
        """Drop waiting tasks, and the answers of ``running`` ones."""
        for item in (*self._waiting, *running):
            if item.task.task_id in task_ids:
                item.closed = True
        self._waiting = deque(item for item in self._waiting if not item.closed)

    def observe(self, seconds: float) -> None:
        """Record the duration of a task."""
        self._mean = seconds if self._mean is None else (1 - _MEMORY) * self._mean + _MEMORY * seconds

    def expected(self, count: int) -> float:
        """Return the expected seconds for ``count`` tasks; 0 if nothing is known yet."""
        return count * (self._mean or 0.0)

    def next_job(self, *, alone: bool = False, suspects: bool = True) -> list[QueuedTask]:
        """Remove and return the next tasks of the queue.

        One task if it is a suspect or ``alone`` is set, else a share that shrinks with the queue, so that workers finish together.

        :param suspects: if False, return nothing if the first task is a suspect; for a job in which it would follow others."""
        affordable = 1 if self._mean is None else int(_JOB_SECONDS / max(self._mean, 1e-6))
        size = 1 if alone else max(1, min(_JOB, len(self._waiting) // (2 * self._workers), affordable))
        job: list[QueuedTask] = []
        while len(job) < size and (item := self._head()) is not None and not ((job or not suspects) and item.retried):
            job.append(self._waiting.popleft())
            if item.retried:
                break
        return job

    def _head(self) -> QueuedTask | None:
        while self._waiting and self._waiting[0].closed:
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None

    def lend(self, items: Sequence[QueuedTask]) -> None:
        """Offer the tasks behind a slow one to other workers too."""
        lent = [item for item in items if not item.closed and item.copies == 1]
        for item in lent:
            item.copies += 1
        self._waiting.extendleft(reversed(lent))

    def put_back(self, items: Iterable[QueuedTask]) -> None:
        """Return the tasks of a lost worker to the front of the queue, unless another place holds them."""
        homeless = []
        for item in items:
            item.copies -= 1
            if item.copies == 0 and not item.closed:
                item.copies = 1
                homeless.append(item)
        self._waiting.extendleft(reversed(homeless))

    def retry(self, item: QueuedTask) -> bool:
        """Try the task once more, alone, at the end of the queue. Return False after its last attempt, or if it was answered or
        cancelled."""
        item.copies -= 1
        if item.retried or item.closed:
            return False
        item.retried = True
        item.copies += 1
        self._waiting.append(item)
        return True

    def answer(self, item: QueuedTask) -> bool:
        """Close the task. Return False if it was already answered or cancelled."""
        first, item.closed = not item.closed, True
        return first


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished task. ``scores`` holds one score per item (none for a check, whose ``complaint`` is the reason or None). ``seconds`` were
    spent in the reward. ``failure`` is the outcome if there is no verdict. ``trace`` is the traceback of an exception that is the reward's
    own fault."""

    task: Task
    scores: tuple[Score, ...] = ()
    complaint: str | None = None
    seconds: float = 0.0
    failure: Outcome | None = None
    trace: str = ""


class ResultInbox:
    """Results, passed from the dispatcher's thread to pollers.

    ``fatal`` is the reason why no more results will come, "" while they will. ``nudges`` counts how often pollers were woken for news from
    elsewhere."""

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._changed = threading.Condition()
        self.nudges = 0
        self.fatal = ""

    def put(self, results: Iterable[Result]) -> None:
        """Add results and wake the pollers."""
        with self._changed:
            self._results.extend(results)
            self._changed.notify_all()

    def fail(self, reason: str) -> None:
        """Report to the pollers that no more results will come, and why."""
        with self._changed:
            self.fatal = self.fatal or reason
            self._changed.notify_all()

    def nudge(self) -> None:
        """Wake the pollers although there are no results here."""
        with self._changed:
            self.nudges += 1
            self._changed.notify_all()

    def take(self, timeout: float, seen: int | None = None) -> list[Result]:
        """Return all results; wait up to ``timeout`` seconds for the first.

        :param seen: the value of ``nudges`` before the caller checked elsewhere, so that a later nudge is not missed."""
        with self._changed:
            before = self.nudges if seen is None else seen
            self._changed.wait_for(lambda: self._results or self.fatal or self.nudges != before, timeout=max(0.0, timeout))
            results, self._results = self._results, []
            return results
