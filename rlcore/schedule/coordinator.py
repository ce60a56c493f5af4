"""The coordinator decides which worker produces which groups, which groups make the next batch, and how every prompt ends.

It is a pure state machine: no I/O, no clock, no threads, and no randomness except that of its samplers. Methods take an event and return a
decision. A runtime calls them from one thread and carries out the decisions. The coordinator never sees a group, only lease ids: payloads
travel from producers to trainers without it.

Misuse raises ValueError. A lease id that is not held is not misuse, because workers die and messages arrive late; it gets a verdict.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import ceil, isfinite
from typing import Any

from rlcore.contracts.errors import ConfigError
from rlcore.contracts.lease import Lease
from rlcore.contracts.runtime_interface import Admission, Status, WaitingFor
from rlcore.schedule.ages import Ages, must_wait, room
from rlcore.schedule.chosen_sampler import ChosenSampler
from rlcore.schedule.ledger import Ledger
from rlcore.schedule.prompt_line import Ended, PromptLine, PromptPlace
from rlcore.schedule.schedule_records import Delivery, DeliveryStatus, ScheduleSettings, SourceSchedule, TrainOrder
from rlcore.schedule.state_formats import as_format_2, read_state

__all__ = ["NO_ACCURACY", "Coordinator", "Delivery", "DeliveryStatus", "ScheduleSettings", "Status", "TrainOrder", "WaitingFor"]

NO_ACCURACY = "no accuracy"
"""The ledger's reason for a group that the filter could not judge, because its reward gave no accuracy."""

_ORDERING = ("train_batch_size", "seed")
"""Settings that determine the order of the prompts, besides the sources and their samplers."""


class _Phase(Enum):
    IN_FLIGHT = auto()
    READY = auto()  # in the buffer, or set aside from a void batch
    TAKEN = auto()


@dataclass(slots=True, eq=False)
class _Held:
    place: PromptPlace
    worker: str
    version: int
    phase: _Phase = _Phase.IN_FLIGHT
    masked: bool = False
    accuracy: float | None = None
    reward: float | None = None


class Coordinator:
    """The coordinator of a run.

    It leases prompts in the order in which samplers draw them, bounds staleness and buffer, filters, cuts batches, and keeps a ledger of
    each source. The cycle is ``lease`` -> ``deliver`` -> ``next_batch`` -> (train) -> ``updated``. An event costs O(log n) for each group
    that it names, plus O(``max_staleness``), plus the calls of samplers.
    """

    def __init__(self, settings: ScheduleSettings, samplers: Sequence[ChosenSampler] = (), among: ChosenSampler | None = None) -> None:
        """Start a schedule at version 0, with no lease granted. ``samplers``, ``among``: as for ``PromptLine``."""
        self.settings = settings
        self.version = 0
        self._line = PromptLine(settings, samplers, among)
        self._next_lease = 0
        self._held: dict[int, _Held] = {}
        self._by_worker: dict[str, set[int]] = {}
        self._in_flight = Ages()
        self._ready = Ages()
        self._set_aside: set[int] = set()
        self._oldest: list[tuple[int, int]] = []  # heap of (version, lease id); may name groups that were lost since
        self._batch: tuple[int, ...] = ()
        self._changes: list[tuple[int, dict[str, Any]]] = []
        """The first version of each change of settings by controllers, with all values that differ from the plan."""

    @classmethod
    def restored(
        cls,
        settings: ScheduleSettings,
        state: Mapping[str, Any],
        samplers: Sequence[ChosenSampler] = (),
        among: ChosenSampler | None = None,
    ) -> Coordinator:
        """Return the schedule that continues from a ``state``. Open prompts are leased again, before all others and in order.

        :raises ConfigError: the state has another format, or what fixes the order of the prompts has changed: a setting, a source or a
            sampler. Other settings may change, and options of samplers.
        """
        state = read_state(state, settings)
        if settings.draws is not None and state["drawn"] > settings.draws:
            begun = ceil(state["drawn"] / (settings.draws // settings.episodes))
            raise ConfigError(f"-e {settings.episodes} is less than the {begun} episodes that the run has begun; type a larger -e")
        coordinator = cls(settings, samplers, among)
        coordinator.version, coordinator._next_lease = state["version"], state["next_lease"]
        coordinator._line.restore(state)
        coordinator._changes = [(version, dict(values)) for version, values in state.get("changes", ())]
        return coordinator

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        """The ledger of each source."""
        return tuple(line.ledger for line in self._line.sources)

    @property
    def finished(self) -> bool:
        """Whether all prompts of all episodes have ended, or ``max_steps`` updates are done."""
        steps = self.settings.max_steps
        return (steps is not None and self.version >= steps) or (self._line.exhausted and not self._held)

    # --- producers ---------------------------------------------------------------------------------------------------

    def lease(self, worker: str, k: int, *, serving: int | None = None) -> list[Lease]:
        """Return up to ``k`` groups for this worker to produce. Return fewer, or none, if staleness, the buffer or the end forbids more.

        Prompts that were given back go first.

        :param serving: the policy version with which the worker will start the groups, if it is not the newest. The lease records the
            assumed version; no token may come from an older one.
        """
        if k < 0 or (serving is not None and serving < 0):
            raise ValueError(f"worker {worker!r} asks for {k} leases at version {serving}: both must be 0 or more")
        version = self.version if serving is None else min(serving, self.version)
        granted: list[Lease] = []
        for _ in range(min(k, self._room(version)[0])):
            if self._line.exhausted:
                break
            granted.append(self._issue(worker, version))
        return granted

    def control(self, after: int, settings: Mapping[str, Any]) -> None:
        """Use these values of settings, by path, for the leases of versions after ``after``: all that differ from the plan.

        They are written on each lease, and ``algorithm.filter_range`` decides on its group, whenever that arrives. A version later than
        the newest makes this independent of which comes first, the change or the next lease.
        """
        if not self._changes or self._changes[-1][1] != settings:
            self._changes.append((after + 1, dict(settings)))

    def _settings(self, version: int) -> Mapping[str, Any]:
        return next((values for first, values in reversed(self._changes) if first <= version), {})

    def _room(self, version: int) -> tuple[int, Admission]:
        """Return how many groups of this version may be leased, and the reason for the limit."""
        started = self.version + bool(self._batch)
        places, limit = room(
            self.settings, started=started, version=self.version, serving=version, in_flight=self._in_flight, ready=self._ready
        )
        free = self.settings.buffer_limit - self._in_flight.total - self._ready.total + len(self._set_aside)
        return (places, limit) if places <= free else (free, Admission.BUFFER)

    def _issue(self, worker: str, version: int) -> Lease:
        place = self._line.take()
        source, lease_id = self._source_of(place), self._next_lease
        self._next_lease += 1
        self._held[lease_id] = _Held(place, worker, version)
        self._by_worker.setdefault(worker, set()).add(lease_id)
        self._in_flight.add(version)
        return Lease(
            lease_id=lease_id,
            episode=place.episode,
            prompt_index=place.prompt,
            n_sampled=source.n_sampled,
            n_greedy=source.n_greedy,
            version=version,
            settings=self._settings(version),
            source_index=place.source,
            ordinal=place.ordinal,
            level=place.level,
        )

    def _source_of(self, place: PromptPlace) -> SourceSchedule:
        return self._line.sources[place.source].source

    def deliver(self, deliveries: Sequence[Delivery]) -> list[DeliveryStatus]:
        """Return one verdict for each delivery, in order. A repeated delivery of a group that is still held gets its first verdict again.

        Raise ValueError, and record nothing, for a version older than the lease's or newer than any that can exist.
        """
        for delivery in deliveries:
            self._check(delivery)
        return [self._receive(delivery) for delivery in deliveries]

    def _check(self, delivery: Delivery) -> None:
        held = self._held.get(delivery.lease_id)
        if held is None or held.phase is not _Phase.IN_FLIGHT:
            return
        newest = self.version + bool(self._batch)  # the next version may be served before `updated` is called
        if not held.version <= delivery.version <= newest:
            raise ValueError(
                f"lease {delivery.lease_id} (worker {held.worker!r}) was delivered with tokens of version {delivery.version}: it may hold "
                f"versions {held.version} to {newest} only; a worker that serves an older policy must say so (`serving=`) when it leases"
            )

    def _receive(self, delivery: Delivery) -> DeliveryStatus:
        held = self._held.get(delivery.lease_id)
        if held is None:
            return DeliveryStatus.UNKNOWN
        if held.phase is _Phase.IN_FLIGHT:
            self._land(delivery.lease_id, held)
            source = self._source_of(held.place)
            held.accuracy, held.reward = delivery.accuracy, delivery.reward
            if reason := delivery.failed or self._unfilterable(source, delivery.accuracy):
                self._end(delivery.lease_id, "failed", reason)
                return DeliveryStatus.FAILED
            changed = self._settings(held.version).get("algorithm.filter_range")
            missed = delivery.accuracy is not None and not source.effective(delivery.accuracy, changed)
            held.masked = missed or bool(delivery.filtered)
            if held.masked and self.settings.dynamic_batching:
                self._end(delivery.lease_id, "filtered")
                return DeliveryStatus.FILTERED
            held.version = min(delivery.version, self.version)
            self._shelve(delivery.lease_id, held)
        return DeliveryStatus.MASKED if held.masked else DeliveryStatus.KEPT

    @staticmethod
    def _unfilterable(source: SourceSchedule, accuracy: float | None) -> str:
        missing = accuracy is None or not isfinite(accuracy)
        return NO_ACCURACY if missing and source.filter_range is not None else ""

    def _land(self, lease_id: int, held: _Held) -> None:
        """Remove this lease from the worker."""
        self._in_flight.remove(held.version)
        leases = self._by_worker[held.worker]
        leases.remove(lease_id)
        if not leases:
            del self._by_worker[held.worker]

    def _shelve(self, lease_id: int, held: _Held) -> None:
        """Make the group ready for training."""
        held.phase = _Phase.READY
        self._ready.add(held.version)
        heapq.heappush(self._oldest, (held.version, lease_id))

    def _end(self, lease_id: int, ended: Ended, reason: str = "") -> None:
        """Record how the prompt ended, and free its place for the next prompt."""
        held = self._held.pop(lease_id)
        self._line.end(held.place, ended, reason, held.accuracy, held.reward)

    # --- trainers ----------------------------------------------------------------------------------------------------

    def next_batch(self) -> TrainOrder | None:
        """Return the oldest ready groups, ``train_batch_size`` of them; None if there is no batch (see ``status().waiting_for``).

        The batch is smaller only if no more groups can arrive: the last batch. There is no other batch until ``updated``.
        """
        if self.waiting_for() is not WaitingFor.NOTHING:
            return None
        self._set_aside.clear()  # the remaining groups of a void batch fit into the buffer again once this batch has left it
        taken: list[int] = []
        while self._oldest and len(taken) < self.settings.train_batch_size:
            _, lease_id = heapq.heappop(self._oldest)
            held = self._held.get(lease_id)
            if held is not None:
                held.phase = _Phase.TAKEN
                self._ready.remove(held.version)
                taken.append(lease_id)
        order = self._order_of(taken, self.version)
        self._batch = order.lease_ids
        return order

    def upcoming(self) -> TrainOrder:
        """Return the ready groups that the next batch would take first, as of now, so that callers can move payloads in advance.

        Groups that are still under way may come before them. The version is that after the batch in training.
        """
        oldest = [lease_id for _, lease_id in heapq.nsmallest(self.settings.train_batch_size, self._oldest) if lease_id in self._held]
        return self._order_of(oldest, self.version + bool(self._batch))

    def _order_of(self, taken: list[int], version: int) -> TrainOrder:
        taken.sort(key=lambda lease_id: self._held[lease_id].place)
        return TrainOrder(
            version=version,
            lease_ids=tuple(taken),
            versions=tuple(self._held[lease_id].version for lease_id in taken),
            masked=frozenset(lease_id for lease_id in taken if self._held[lease_id].masked),
        )

    def waiting_for(self) -> WaitingFor:
        """Return whether ``next_batch`` would return a batch now, or the reason why not."""
        if self._batch:
            return WaitingFor.UPDATE
        if self.finished:
            return WaitingFor.END
        arriving = self._in_flight.total > 0 or not self._line.exhausted
        if self._ready.total < self.settings.train_batch_size and arriving:
            return WaitingFor.GROUPS
        held_up = not self.settings.partial_rollouts and must_wait(self.settings, self.version, self._in_flight)
        return WaitingFor.STRAGGLERS if held_up else WaitingFor.NOTHING

    def updated(self) -> int:
        """Record that the batch was trained, and return the new version. The samplers then see how prompts ended since the last update.

        Raise ValueError if no batch is taken (or it became void)."""
        if not self._batch:
            raise ValueError(
                f"no batch is being trained at version {self.version}: call next_batch first, and drop a batch that became void"
            )
        for lease_id in self._batch:
            self._end(lease_id, "filtered" if self._held[lease_id].masked else "trained")
        self._batch = ()
        self.version += 1
        self._line.updated(self.version)
        return self.version

    # --- losses ------------------------------------------------------------------------------------------------------

    def under_way(self, worker: str) -> int:
        """Return how many groups this worker has leased and not delivered."""
        return len(self._by_worker.get(worker, ()))

    def worker_lost(self, worker: str) -> tuple[int, ...]:
        """Record the loss of a worker, and return the leases that ended.

        Its groups in flight are leased again; its delivered groups stay.
        """
        return self.withdraw(sorted(self._by_worker.get(worker, ())))

    def withdraw(self, lease_ids: Iterable[int]) -> tuple[int, ...]:
        """Take back leases that will not be produced, and return those that ended. Their prompts are leased again, before all others.

        Leases that are not in flight are ignored.
        """
        ended: list[int] = []
        for lease_id in lease_ids:
            held = self._held.get(lease_id)
            if held is not None and held.phase is _Phase.IN_FLIGHT:
                self._land(lease_id, held)
                self._give_back(lease_id)
                ended.append(lease_id)
        return tuple(ended)

    def group_lost(self, lease_id: int) -> bool:
        """Record that the payload of this group vanished. Its prompt is leased again, before all others.

        Return True if the group was in the batch being trained. That batch is then void: do not train it, do not call ``updated``. Its
        other groups are ready again, outside the buffer's bound, and a later ``next_batch`` selects anew. A lease that is not held is
        ignored.
        """
        held = self._held.get(lease_id)
        if held is None:
            return False
        void = held.phase is _Phase.TAKEN
        if void:
            self._void_batch(lease_id)
        elif held.phase is _Phase.READY:
            self._ready.remove(held.version)
            self._set_aside.discard(lease_id)
        else:
            self._land(lease_id, held)
        self._give_back(lease_id)
        return void

    def _give_back(self, lease_id: int) -> None:
        self._line.put_back(self._held.pop(lease_id).place)

    def _void_batch(self, lost: int) -> None:
        for lease_id in self._batch:
            if lease_id != lost:
                self._shelve(lease_id, self._held[lease_id])
                self._set_aside.add(lease_id)
        self._batch = ()

    # --- reports -----------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """Return the state of the schedule."""
        places, limit = self._room(self.version)
        admission = Admission.EXHAUSTED if self._line.exhausted else limit if places <= 0 else Admission.OPEN
        return Status(
            version=self.version,
            finished=self.finished,
            trained=sum(ledger.trained for ledger in self.ledgers),
            filtered=sum(ledger.filtered for ledger in self.ledgers),
            failed=sum(ledger.failed for ledger in self.ledgers),
            buffered=self._ready.total - len(self._set_aside),
            in_flight=self._in_flight.total,
            taken=len(self._batch),
            set_aside=len(self._set_aside),
            given_back=self._line.returned,
            waiting_for=self.waiting_for(),
            admission=admission,
            sources={line.source.name: line.ledger.ended() for line in self._line.sources if line.source.name},
        )

    def state(self) -> dict[str, Any]:
        """Return JSON values for a checkpoint.

        It holds the number of draws, the prompts that were leased and have not ended (``open``), and of each source its ledger and what its
        sampler depends on. The ``settings`` that fix the order of the prompts are included.

        Leases are left out, because their payloads are lost with the processes that held them: prompts in flight, ready or in training are
        open. Therefore a state is small, whatever the size of the data set, if that of the sampler is.
        """
        state = {
            "format": 3,
            "settings": {name: getattr(self.settings, name) for name in _ORDERING},
            "version": self.version,
            "next_lease": self._next_lease,
            **self._line.state([held.place for held in self._held.values()]),
            "changes": [[version, dict(values)] for version, values in self._changes],
        }
        return as_format_2(state, self.settings) if self._line.plain else state
