"""The dispatcher of one asynchronous reward. A single worker hosts it, with as many tasks in flight as the reward allows.

The worker's event loop enforces the deadlines. This dispatcher checks that the loop makes progress. If the loop was blocked for the
deadline of a task in flight, the worker is killed. The task that was running on the loop is suspected; the others return to the queue
without penalty.
"""

from __future__ import annotations

import time

from rlcore.contracts.types import Outcome
from rlcore.rewards.async_worker import BEAT_SECONDS
from rlcore.rewards.dispatch import UNASKED, Dispatcher
from rlcore.rewards.task_queue import QueuedTask, ResultInbox
from rlcore.rewards.worker_process import WorkerProcess, WorkerState
from rlcore.rewards.worker_protocol import Done, WorkerLimits, encode

__all__ = ["AsyncDispatcher"]


class AsyncDispatcher(Dispatcher):
    """The dispatcher of one asynchronous reward. ``concurrency`` is the maximum number of tasks in flight."""

    asynchronous = True
    _sparing = False

    def __init__(self, setup: bytes, *, concurrency: int, inbox: ResultInbox, start_seconds: float, limits: WorkerLimits) -> None:
        super().__init__(setup, workers=1, inbox=inbox, start_seconds=start_seconds, limits=limits)
        self._concurrency = concurrency
        self._leaving: WorkerProcess | None = None
        """A worker that asked to be replaced and still has tasks. It receives no new ones."""

    def _assign(self) -> None:
        for worker in [w for w in self._workers if w.state in (WorkerState.IDLE, WorkerState.BUSY) and w is not self._leaving]:
            job: list[QueuedTask] = []
            with self._lock:
                while len(worker.job) + len(job) < self._concurrency and (one := self._queue.next_job(alone=True)):
                    job += one
                worker.job.extend(job)
            if job:
                self._send(worker, encode([(item.task.task_id, item.payload) for item in job]))
                if worker.state is WorkerState.IDLE:
                    worker.state = WorkerState.BUSY
                    self._set_clock(worker)

    def _on_done(self, worker: WorkerProcess, done: Done) -> None:
        item = next((item for item in worker.job if item.task.task_id == done.task_id), None)
        if item is None:
            self._handle_death(worker, UNASKED)
            return
        with self._lock:
            worker.job.remove(item)
        self._answered(worker, item, done)
        if done.retire:
            self._leaving = worker
        if worker.job:
            return
        worker.state, worker.due = WorkerState.IDLE, None
        if self._leaving is worker:
            self._send(worker, encode(None))
            self._retire(worker)

    def _set_clock(self, worker: WorkerProcess) -> None:
        """Set the time of the next check of its loop and its memory."""
        longest = BEAT_SECONDS if self._max_call else 1.0
        worker.due = time.monotonic() + min(longest, max(BEAT_SECONDS, self._shortest(worker) / 4))

    def _shortest(self, worker: WorkerProcess) -> float:
        return min((float(item.task.deadline) for item in worker.job), default=1.0)

    def _look_at(self, worker: WorkerProcess) -> None:
        if self._outgrown(worker):
            return
        shortest = self._shortest(worker)
        if worker.panel is None or worker.panel.silent() < shortest + 2 * BEAT_SECONDS:
            self._set_clock(worker)
            return
        culprits = self._culprits(worker)
        self._remove(worker)
        self._suspect(worker, culprits, Outcome.TIMEOUT, f"the event loop was blocked for {shortest:g} s, twice")

    def _culprits(self, worker: WorkerProcess) -> list[QueuedTask]:
        """Return the task that was running on the loop, or all tasks in flight if none was."""
        current = worker.panel.current() if worker.panel is not None else None
        found = [item for item in worker.job if item.task.task_id == current]
        return found or list(worker.job)
