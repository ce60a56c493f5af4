"""The feed that overlaps: one thread generates and has groups judged while the caller trains (staleness 1 and more).

One condition guards the coordinator and wakes whoever waits for it: the trainer for groups, the producer for room or for new weights.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlcore.contracts.errors import RunError
from rlcore.contracts.snapshots import Snapshot
from rlcore.roles.evaluator import Evaluation, EvaluationRequests, TaskReport
from rlcore.roles.producer import GroupJob, Produced
from rlcore.runtime.feed import POLL_SECONDS, Batch, Feed
from rlcore.runtime.parts import newer_weights
from rlcore.runtime.timing import profiled, waiting_activity

__all__ = ["ThreadedFeed"]


@dataclass(eq=False)
class ThreadedFeed(Feed):
    """Generation in a thread of its own. Every public method is for the caller's thread."""

    _stopping: bool = field(default=False, init=False)
    _leasing: bool = field(default=False, init=False)
    """Nothing is leased before the first batch is asked for: an evaluation at the start has the engine alone."""
    _error: BaseException | None = field(default=None, init=False)
    _requests: EvaluationRequests = field(default_factory=EvaluationRequests, init=False)
    _evaluation: tuple[int, Evaluation] | None = field(default=None, init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._produce, name=f"producer {self.producer.name}", daemon=True)

    def next_batch(self) -> Batch | None:
        if not self._thread.ident:
            self._thread.start()
        with self._changed:
            if not self._leasing:
                self._leasing = True
                self._changed.notify_all()
            while (order := self.coordinator.next_batch()) is None:
                self._warn()
                self._raise_from_thread()
                if self.coordinator.finished or self.interrupted():
                    return None
                self._changed.wait()
            self._changed.notify_all()
            self._warn()
            return self._batch(order)

    def evaluate(self, step: int) -> None:
        if not self._thread.ident:
            self._thread.start()
        with self._changed:
            self._requests.ask(step)
            self._changed.notify_all()

    def take_evaluations(self, *, wait: bool = False) -> list[tuple[int, list[TaskReport]]]:
        with self._changed:
            while wait and (self._requests or self._evaluation):
                self._raise_from_thread()
                self._changed.wait()
            return super().take_evaluations()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident and not self.pulse.given_up:
            self._thread.join()

    def _raise_from_thread(self) -> None:
        if self._error is not None:
            raise self._error
        if self._stopping:
            raise RunError("the producer was stopped while a batch was awaited")

    # --- the producer's thread ---------------------------------------------------------------------------------------

    def _produce(self) -> None:
        try:
            with profiled(self.profile), self.pulse.working():
                while self._take_work():
                    self._collect(self.producer.step(POLL_SECONDS))
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _take_work(self) -> bool:
        """Load newer weights, start an evaluation or new leases; wait where there is nothing to do; False at the end."""
        while True:
            self.pulse.beat()
            snapshot = self._newer_weights()
            if snapshot is not None:
                self.producer.load(snapshot)
            with self._changed:
                if self._stopping:
                    return False
                jobs = self._evaluation_jobs() + (self._new_jobs() if self._leasing else [])
                if not jobs and self.producer.idle and self._newer_weights() is None:
                    self._wait_for_room()
                    continue
            if jobs:
                self.producer.accept(jobs)
            if not self.producer.idle:
                return True

    def _wait_for_room(self) -> None:
        with self.producer.waiting(waiting_activity(self.coordinator.status().admission)), self.pulse.resting():
            self._changed.wait()

    def _newer_weights(self) -> Snapshot | None:
        # An evaluation is made by one version from its first token to its last, so it holds newer weights off.
        return None if self._evaluation else newer_weights(self.receiver, self.producer.version)

    def _evaluation_jobs(self) -> list[GroupJob]:
        if self._evaluation or not self._requests or self._newer_weights() is not None:
            return []
        step = max(self._requests.first, self.producer.version)
        self._evaluation = (step, self._start_evaluation())
        self.producer.booking = "evaluation"
        return self._evaluation[1].jobs

    def _collect(self, results: Sequence[Produced]) -> None:
        if not results:
            return
        with self._changed:
            groups = [produced for produced in results if not self._evaluated(produced)]
            self._deliver(sorted(groups, key=lambda produced: produced.job.key))
            self.watch.check()
            self._changed.notify_all()

    def _evaluated(self, produced: Produced) -> bool:
        if self._evaluation is None or not self._evaluation[1].collect(produced):
            return False
        step, evaluation = self._evaluation
        if evaluation.whole:
            self._reports.append((step, evaluation.reports()))
            self._requests.answered(step)
            self._evaluation = None
            self.producer.booking = None
        return True
