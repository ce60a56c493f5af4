"""Where a local run's batches come from: the coordinator, one producer, and the groups between delivery and training.

``SequentialFeed`` generates and trains in turns, in waves whose cut depends on nothing but the configuration: staleness 0, bitwise
reproducible. ``ThreadedFeed`` (its own file) generates while the caller trains: staleness 1 and more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlcore.contracts.transport import Publisher, Receiver
from rlcore.contracts.types import Group
from rlcore.roles.evaluator import Evaluation, Evaluator, TaskReport
from rlcore.roles.producer import GroupJob, Produced, Producer
from rlcore.runtime.delivery import JobMaker, Tokens, delivery_of, failure_of, group_of
from rlcore.runtime.parts import newer_weights
from rlcore.runtime.pulse import Pulse
from rlcore.runtime.starvation import FilterWatch
from rlcore.schedule.coordinator import Coordinator, TrainOrder, Verdict

__all__ = ["POLL_SECONDS", "Batch", "Feed", "SequentialFeed"]

POLL_SECONDS = 0.05
# The longest that a producer stays away from new weights and leases while nothing finishes; it is not a sleep.


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The groups of one update in canonical order; ``masked`` numbers those that were filtered and train nothing; ``filtering``: figures
    of what the filter took out for it, empty without a filter."""

    groups: tuple[Group, ...]
    masked: frozenset[int]
    version: int
    filtering: Mapping[str, float] = field(default_factory=dict)


@dataclass(eq=False)
class Feed:
    """What both feeds share: leases become jobs, results become deliveries, kept groups wait here until they train.

    What ``publisher`` publishes, ``receiver`` has at once. ``watch`` sees every delivery; what it has to say reaches ``say`` in the
    caller's thread. ``in_flight``: prompts under way at once, at most. ``interrupted`` is asked while a batch is waited for: a filter that
    lets nothing pass must not keep a user who wants to stop. ``profile``: where a feed with a thread of its own writes that thread's
    profile. ``pulse`` beats while the engine comes back from what it is asked. ``_changed`` guards all of it in such a feed.
    """

    coordinator: Coordinator
    producer: Producer
    jobs: JobMaker
    evaluator: Evaluator
    publisher: Publisher
    receiver: Receiver
    in_flight: int
    watch: FilterWatch
    say: Callable[[str], None]
    interrupted: Callable[[], bool] = lambda: False
    profile: Path | None = None
    pulse: Pulse = field(default_factory=Pulse, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _groups: dict[int, Group] = field(default_factory=dict, init=False)
    _evaluation_key: int = field(default=-1, init=False)
    _reports: list[tuple[int, list[TaskReport]]] = field(default_factory=list, init=False)
    _failures: list[dict[str, Any]] = field(default_factory=list, init=False)
    _scored: list[Group] = field(default_factory=list, init=False)
    _tokens: Tokens = field(default_factory=Tokens, init=False)

    def next_batch(self) -> Batch | None:
        """The next update's groups; None at the end of the run, or where the run is ``interrupted`` before they are there. Blocks."""
        raise NotImplementedError

    def updated(self) -> int:
        """The batch was trained; the version that it made."""
        with self._changed:
            version = self.coordinator.updated()
            self._changed.notify_all()
            return version

    def publish(self, hand_out: Callable[[Publisher], None]) -> None:
        """Have new weights handed to the publisher, for the producer."""
        with self._changed:
            hand_out(self.publisher)
            self._changed.notify_all()

    def evaluate(self, step: int) -> None:
        """Have the held-out tasks evaluated with the newest weights; the reports come by ``take_evaluations``."""
        raise NotImplementedError

    def take_evaluations(self, *, wait: bool = False) -> list[tuple[int, list[TaskReport]]]:
        """(step, reports) of the evaluations that are complete; with ``wait``, of all that were asked for."""
        reports, self._reports = self._reports, []
        return reports

    def take_scored(self) -> list[Group]:
        """Every group that was scored since the last call, whatever became of it."""
        with self._changed:
            scored, self._scored = self._scored, []
            return scored

    def take_tokens(self) -> Tokens:
        """Tokens generated since the last call, and how many of them in groups that do not train."""
        with self._changed:
            tokens, self._tokens = self._tokens, Tokens()
            return tokens

    def take_failures(self) -> list[dict[str, Any]]:
        """The prompts that failed since the last call, with the reason."""
        with self._changed:
            failures, self._failures = self._failures, []
            return failures

    def state(self) -> dict[str, Any]:
        """The coordinator's state, JSON-able, for a checkpoint."""
        with self._changed:
            return self.coordinator.state()

    def stop(self) -> None:
        """No further batch is wanted."""

    def _new_jobs(self) -> list[GroupJob]:
        free = self.in_flight - self.producer.busy
        leases = self.coordinator.lease(self.producer.name, free, serving=self.producer.version) if free > 0 else []
        return [self.jobs.job(lease) for lease in leases]

    def _deliver(self, results: Sequence[Produced]) -> None:
        groups = {produced.job.key: group_of(produced, self.jobs.lease(produced.job.key)) for produced in results}
        deliveries = [delivery_of(key, group, self.jobs.lease(key), self.jobs.filter_by) for key, group in groups.items()]
        self._scored += groups.values()
        for delivery, verdict in zip(deliveries, self.coordinator.deliver(deliveries), strict=True):
            self.watch.saw(delivery, verdict)
            tokens = sum(rollout.length for rollout in groups[delivery.lease_id].rollouts)
            self._tokens = self._tokens.plus(tokens, wasted=verdict is not Verdict.KEPT)
            if verdict is Verdict.FAILED:
                self._failures.append(failure_of(groups[delivery.lease_id], self.jobs.filter_by if not delivery.failed else ""))
            if verdict.kept:
                self._groups[delivery.lease_id] = groups[delivery.lease_id]
            self.jobs.close(delivery.lease_id)

    def _batch(self, order: TrainOrder) -> Batch:
        groups = tuple(self._groups.pop(lease_id) for lease_id in order.lease_ids)
        masked = frozenset(place for place, lease_id in enumerate(order.lease_ids) if lease_id in order.masked)
        return Batch(groups=groups, masked=masked, version=order.version, filtering=self.watch.next_update())

    def _warn(self) -> None:
        for note in self.watch.take_notes():
            self.say(note)

    def _start_evaluation(self) -> Evaluation:
        evaluation = self.evaluator.start(self._evaluation_key)
        self._evaluation_key -= len(evaluation.jobs)
        return evaluation

    def _load_newest(self) -> None:
        # A producer that sleeps has lost its weights, so that those it served last are new to it.
        served = self.producer.version - self.producer.asleep
        if (snapshot := newer_weights(self.receiver, served)) is not None:
            with self.pulse.working():
                self.producer.load(snapshot)


class SequentialFeed(Feed):
    """Waves: lease, generate and score everything, deliver in lease order; then the caller trains.

    ``colocated``: producer and trainer take turns on one device. The producer sleeps from the moment a batch is handed out until the next
    weights are wanted, by a batch or by an evaluation; what it generates is the same, bit for bit.
    """

    colocated = False

    def next_batch(self) -> Batch | None:
        self._load_newest()
        while (order := self.coordinator.next_batch()) is None:
            if self.coordinator.finished or self.interrupted():
                return None
            jobs = self._new_jobs()
            self._deliver(self._run(jobs))
            self._warn()
            self.watch.check()
        if self.colocated:
            with self.pulse.working():
                self.producer.sleep()
        return self._batch(order)

    def evaluate(self, step: int) -> None:
        self._load_newest()
        evaluation = self._start_evaluation()
        self.producer.booking = "evaluation"
        for produced in self._run(evaluation.jobs):
            evaluation.collect(produced)
        self.producer.booking = None
        self._reports.append((step, evaluation.reports()))

    def _run(self, jobs: list[GroupJob]) -> list[Produced]:
        results: list[Produced] = []
        with self.pulse.working():
            self.producer.accept(jobs)
            while not self.producer.idle:
                self.pulse.beat()
                results += self.producer.step(POLL_SECONDS)
        return sorted(results, key=lambda produced: produced.job.key)
