"""Tasks that wait for workers, the books on those that are out, and results that wait for pollers. Knows no process.

A task may be at several places at once: while a slow one holds up a job, what stands behind it is lent to the queue. The first answer
counts, later ones are dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlcore.contracts.types import Outcome, Score
from rlcore.rewards.worker_protocol import Task

__all__ = ["QueuedTask", "Result", "ResultInbox", "TaskQueue"]

_JOB = 16  # tasks sent to a worker at once, at most: enough to hide the way there and back
_JOB_SECONDS = 0.02  # and no more than take about that long together, so that little stands behind one that hangs
_MEMORY = 0.02  # weight of the newest task in the mean duration


@dataclass(slots=True, eq=False)
class QueuedTask:
    """A task on its way. ``copies``: how many places hold it, the queue and jobs of workers; ``retried``: its last attempt is next."""

    task: Task
    payload: bytes
    retried: bool = False
    copies: int = 1
    closed: bool = False


class TaskQueue:
    """``workers``: how many share it. Not thread-safe: its owner holds a lock."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._waiting: deque[QueuedTask] = deque()
        self._mean: float | None = None

    def extend(self, items: Iterable[QueuedTask]) -> None:
        """New tasks, at the end."""
        self._waiting.extend(items)

    def cancel(self, task_ids: set[int], running: Iterable[QueuedTask]) -> None:
        """Drop those that wait, and the answers of those that are ``running``."""
        for item in (*self._waiting, *running):
            if item.task.task_id in task_ids:
                item.closed = True
        self._waiting = deque(item for item in self._waiting if not item.closed)

    def observe(self, seconds: float) -> None:
        """A task took that long."""
        self._mean = seconds if self._mean is None else (1 - _MEMORY) * self._mean + _MEMORY * seconds

    def expected(self, count: int) -> float:
        """Seconds that so many tasks may take; 0 where nothing is known yet."""
        return count * (self._mean or 0.0)

    def next_job(self, *, alone: bool = False, suspects: bool = True) -> list[QueuedTask]:
        """The head of the queue: one item where it is a suspect or is wanted ``alone``, else a share that shrinks as the queue does, so
        that workers end together. ``suspects`` False: nothing where the head is one, for a job that others stand before."""
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
        """What stands behind a slow task is offered to other workers too."""
        lent = [item for item in items if not item.closed and item.copies == 1]
        for item in lent:
            item.copies += 1
        self._waiting.extendleft(reversed(lent))

    def put_back(self, items: Iterable[QueuedTask]) -> None:
        """A worker is gone: what it had not begun is again at the head of the queue, unless another place holds it."""
        homeless = []
        for item in items:
            item.copies -= 1
            if item.copies == 0 and not item.closed:
                item.copies = 1
                homeless.append(item)
        self._waiting.extendleft(reversed(homeless))

    def retry(self, item: QueuedTask) -> bool:
        """Once more, alone, at the end of the queue; False where it had its last attempt, or nobody waits for it."""
        item.copies -= 1
        if item.retried or item.closed:
            return False
        item.retried = True
        item.copies += 1
        self._waiting.append(item)
        return True

    def answer(self, item: QueuedTask) -> bool:
        """An end of the task; False where it had one, or was cancelled."""
        first, item.closed = not item.closed, True
        return first


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
