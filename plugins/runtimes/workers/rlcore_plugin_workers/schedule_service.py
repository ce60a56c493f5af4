"""The coordinator behind an event loop, for many producers and stores and one driver. Callers that must wait receive a future; nothing
polls.

``ScheduleService`` is a plain asyncio object. The Ray runtime makes an actor of it, and tests use it directly. It handles only names and
numbers: groups stay in their stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from rlcore.api import Lease, RunError
from rlcore.api.runtime import (
    DeliveryStatus,
    FilterMonitor,
    GroupSummary,
    StarvationError,
    Status,
    TokenCounts,
    WaitingFor,
    WorkerLostError,
)
from rlcore.api.schedule import Coordinator, LeaseQueue, TrainOrder

__all__ = ["BatchOrder", "DeliveryBatch", "DeliveryResult", "ScheduleService"]

_MAX_CONSECUTIVE_RESTARTS = 10
"""The number of consecutive deaths of stores and judges, without a delivery between them, that a run survives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryBatch:
    """Groups that a producer delivers together and a store holds."""

    store: str
    worker: str
    arrivals: tuple[GroupSummary, ...]


DeliveryResult = list[DeliveryStatus] | ValueError
"""What the coordinator made of a delivery_batch: one verdict for each group; or the error, after which none of its groups is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOrder:
    """A batch to train: the coordinator's order, the store of each group, and the figures of filter and schedule for it.

    ``tokens``: the number of tokens generated for its groups that are not masked."""

    order: TrainOrder
    stores: Mapping[str, tuple[int, ...]]
    filtering: Mapping[str, float]
    tokens: int = 0


@dataclass(slots=True)
class _ProducerState:
    """A live producer. ``asks``: the number of leases that it waits for. ``answer``: the future that receives them, None if it does not
    wait. ``groups``: the number of delivered groups. ``since``: the time of the last delivery, or of the last lease that it
    received while it had none."""

    serving: int = -1
    asks: int = 0
    answer: asyncio.Future[list[Lease]] | None = None
    groups: int = 0
    since: float = 0.0


@dataclass(slots=True)
class _KeptGroup:
    store: str
    tokens: int


class ScheduleService:
    """One coordinator, its filter watch, and the callers that wait for them. Nothing is leased before the first ``next_batch``, so that an
    evaluation at the start has the engines to itself."""

    def __init__(self, coordinator: Coordinator, watch: FilterMonitor) -> None:
        self._coordinator = coordinator
        self._watch = watch
        self._state = self._state_now()
        self._queue = LeaseQueue(on_policy=coordinator.settings.alternating)
        self._workers: dict[str, _ProducerState] = {}
        self._kept: dict[int, _KeptGroup] = {}
        self._leases: dict[int, Lease] = {}
        self._is_open = False
        self._handing_over = False
        self._stopped = False
        self._interrupted = self._interrupted_next = self._interrupt_asked = False
        self._batch: asyncio.Future[BatchOrder | None] | None = None
        self._order: TrainOrder | None = None
        self._filtering: Mapping[str, float] | None = None
        self._tokens = TokenCounts()
        self._failures: list[dict[str, Any]] = []
        self._failure: RunError | None = None
        """Of a sampler, which ends the run: no lease follows."""
        self._state_waiters: list[asyncio.Future[None]] = []
        self._served = asyncio.Event()
        """Set when fewer producers may be behind, or when no caller should wait for them."""
        self._reader: asyncio.Future[list[str]] | None = None
        self._notes: list[str] = []
        self._restarts: dict[str, int] = {}
        self._consecutive_restarts = 0

    # --- producers ---------------------------------------------------------------------------------------------------

    async def join(self, worker: str) -> None:
        """Register a live producer, which may then lease."""
        self._workers[worker] = _ProducerState()

    async def lease(self, worker: str, k: int, serving: int) -> list[Lease]:
        """Wait for leases and return at least one and at most ``k``. Return [] if no lease can follow, or the producer was lost.

        On-policy (staleness 0), leases are dealt only when every producer waits, so that the assignment of prompts does not depend on
        timing.
        """
        state = self._workers.get(worker)
        if state is None or self._over:
            return []
        state.serving, state.asks = max(serving, state.serving), k
        answer: asyncio.Future[list[Lease]] = asyncio.get_running_loop().create_future()
        state.answer = answer
        self._queue.wait(worker, asks=k, serving=state.serving)
        self._pump()
        return await answer

    async def serving(self, worker: str, version: int) -> None:
        """Record that the producer now serves these weights. A lease that it waits for will have this version."""
        if (state := self._workers.get(worker)) is not None:
            state.serving = max(version, state.serving)
            self._served.set()
            if state.answer is not None:
                self._queue.wait(worker, asks=state.asks, serving=state.serving)
            self._pump()

    async def served(self, version: int) -> None:
        """Wait until every producer that serves weights serves this version or a newer one. An interrupt ends the wait."""
        while not self._interrupt_asked and any(0 <= state.serving < version for state in self._workers.values()):
            self._served.clear()
            await self._served.wait()

    async def deliver(self, store: str, worker: str, arrivals: Sequence[GroupSummary]) -> list[DeliveryStatus]:
        """Return one verdict for each group; the store keeps those that are ``kept`` and drops the rest. Raise ValueError, and record
        nothing, for a version that the group cannot have (``Coordinator.deliver``)."""
        result = self._receive(DeliveryBatch(store=store, worker=worker, arrivals=tuple(arrivals)))
        if isinstance(result, ValueError):
            raise result
        self._pump()
        return result

    async def deliver_batches(self, delivery_batches: Sequence[DeliveryBatch]) -> list[DeliveryResult]:
        """Do several calls of ``deliver`` in one. An error in one of them does not affect the others. Batches are cut and leases
        are dealt after all deliveries are recorded."""
        results = [self._receive(delivery_batch) for delivery_batch in delivery_batches]
        self._pump()
        return results

    def _receive(self, delivery_batch: DeliveryBatch) -> DeliveryResult:
        try:
            verdicts = self._coordinator.deliver([arrival.delivery for arrival in delivery_batch.arrivals])
        except ValueError as error:
            return error
        if (state := self._workers.get(delivery_batch.worker)) is not None:
            state.groups += len(delivery_batch.arrivals)
            state.since = monotonic()
        self._consecutive_restarts = 0
        self._interrupted = self._interrupted or self._interrupted_next
        for arrival, verdict in zip(delivery_batch.arrivals, verdicts, strict=True):
            self._book(delivery_batch.store, arrival, verdict)
        return verdicts

    def _book(self, store: str, arrival: GroupSummary, verdict: DeliveryStatus) -> None:
        lease_id = arrival.delivery.lease_id
        lease = self._leases.pop(lease_id, None)
        if lease is not None:  # else it was recorded before, or came too late
            self._watch.saw(arrival.delivery, verdict)
            self._tokens = self._tokens.plus(arrival.tokens, wasted=verdict is not DeliveryStatus.KEPT, cut=arrival.cut_tokens)
            if verdict is DeliveryStatus.FAILED:
                of_source = {"source": arrival.delivery.source} if arrival.delivery.source else {}
                ended = {**of_source, "step": self._coordinator.version + 1, "episode": lease.episode}
                self._failures.append({**ended, "prompt_id": arrival.prompt_id, "reason": arrival.reason})
        if verdict.kept:
            # Masked tokens are already counted as wasted.
            self._kept[lease_id] = _KeptGroup(store, arrival.tokens if verdict is DeliveryStatus.KEPT else 0)

    # --- the driver --------------------------------------------------------------------------------------------------

    async def next_batch(self, trained: int | None = None) -> BatchOrder | None:
        """Wait for the groups of the next update and return them. Return None at the end, or after an interrupt. ``trained`` is the version
        that the current update has made; it is recorded first, in the same call, because two calls could overtake each other.

        Raise StarvationError if the filter leaves nothing to train on. Raise RunError if a sampler fails, or if ``trained`` is not the
        version that the schedule expects.
        """
        if trained is not None:
            await self.updated(trained)
        self._is_open, self._handing_over = True, False
        batch: asyncio.Future[BatchOrder | None] = asyncio.get_running_loop().create_future()
        self._batch = batch
        self._pump()
        return await batch

    async def training(self) -> None:
        """Record that the ranks have the batch, and grant leases again: work on new leases must not delay a batch. If the driver does not
        call this, the producers rest until it asks for the next batch."""
        self._handing_over = False
        self._pump()

    async def upcoming(self) -> BatchOrder:
        """Return the next batch as it would be if it were cut now. The driver can send it to the ranks ahead of time."""
        order = self._coordinator.upcoming()
        return BatchOrder(order=order, stores=self._by_store(order.lease_ids), filtering={}, tokens=self._tokens_of(order))

    async def updated(self, version: int) -> None:
        """Record that the current update has made this version."""
        if self._order is None or self._order.version + 1 != version:
            raise RunError(f"the trainer made version {version}, but the schedule waits for version {self._coordinator.version + 1}")
        self._coordinator.updated()
        for lease_id in self._order.lease_ids:
            self._kept.pop(lease_id, None)
        self._order = self._filtering = None
        self._state = self._state_now()
        for reached in self._state_waiters:
            if not reached.done():
                reached.set_result(None)
        self._state_waiters.clear()
        self._pump()

    async def groups_lost(self, lease_ids: Sequence[int]) -> bool:
        """Lease the prompts of these groups again, because their data is lost. Return True if the current batch is void."""
        void = False
        for lease_id in lease_ids:
            kept = self._kept.pop(lease_id, None)
            self._tokens = self._tokens.lost(kept.tokens if kept else 0)
            void |= self._coordinator.group_lost(lease_id)
        if void:
            self._order, self._handing_over = None, False  # keep its filter figures for the next one
        self._pump()
        return void

    async def store_lost(self, store: str) -> None:
        """Record the loss of a store with all its groups, except those of the current batch. The driver may have read these before; if not,
        it calls ``groups_lost``."""
        under_way = self._order.lease_ids if self._order is not None else ()
        await self.groups_lost([lease_id for lease_id, kept in self._kept.items() if kept.store == store and lease_id not in under_way])

    async def worker_lost(self, worker: str) -> tuple[int, int]:
        """Record the loss of a producer, and lease its prompts in flight again. Return (leases that ended, groups that it had
        delivered)."""
        state = self._workers.pop(worker, None)
        self._served.set()
        ended = self._coordinator.worker_lost(worker)
        for lease_id in ended:
            self._leases.pop(lease_id, None)
        if state is not None and state.answer is not None:
            self._answer(worker, state, [])
        self._pump()
        return len(ended), state.groups if state else 0

    async def overdue(self, seconds: float) -> list[str]:
        """Return the producers that have leases and have delivered no group for ``seconds``."""
        now = monotonic()
        return [name for name, state in self._workers.items() if now - state.since > seconds and self._coordinator.under_way(name)]

    async def interrupt(self, after_delivery: bool = False) -> None:
        """Answer the caller that waits for a batch with None: at once, or if the next delivery does not complete a batch."""
        self._interrupt_asked, self._interrupted_next = True, after_delivery
        self._served.set()
        self._interrupted = self._interrupted or not after_delivery
        self._pump()

    async def stop(self) -> None:
        """Stop leasing."""
        self._stopped = True
        self._pump()

    async def status(self) -> Status:
        """Return the coordinator's status."""
        return self._coordinator.status()

    async def state(self, version: int) -> dict[str, Any]:
        """Wait until this version is reached, and return the states of ``coordinator`` and ``watch`` at that moment, in a form that JSON
        can store. Later events are left out: a restored run makes their groups again, so they must not be counted before."""
        while self._coordinator.version < version:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._state_waiters.append(reached)
            await reached
        return self._state

    def _state_now(self) -> dict[str, Any]:
        return {"coordinator": self._coordinator.state(), "watch": self._watch.state()}

    async def control(self, after: int, settings: Mapping[str, Any]) -> None:
        """Use other values of settings for leases of later versions, as ``Coordinator.control`` does."""
        self._coordinator.control(after, settings)

    async def watch(self) -> FilterMonitor:
        """Return the filter's record. Notes that were not taken stay in it."""
        return self._watch

    async def next_notes(self) -> list[str]:
        """Wait for messages for the user and return them. Raise WorkerLostError if services die again and again without a delivery between
        deaths."""
        reader: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._reader = reader
        self._tell()
        return await reader

    async def lifetime(self) -> None:
        """Never return; a caller that waits for it learns at once if this process dies."""
        await asyncio.Event().wait()

    async def lives(self) -> None:
        """Return, which shows that its process is not stopped."""

    async def restarted(self, what: str) -> None:
        """Record that a store or a judge died and was replaced."""
        self._restarts[what] = self._restarts.get(what, 0) + 1
        self._consecutive_restarts += 1
        self._notes.append(f"warning: the {what} of a node died and was restarted; its work is done again")
        self._pump()

    async def restarts(self) -> Mapping[str, int]:
        """Return how often each kind of service was restarted."""
        return self._restarts

    async def take_failures(self) -> list[dict[str, Any]]:
        """Return the prompts that failed since the last call: ``step`` (the update that was awaited or made then), ``episode``,
        ``prompt_id``, ``reason``."""
        failures, self._failures = self._failures, []
        return failures

    async def tokens(self) -> TokenCounts:
        """Return how many tokens were generated, and how many of them were wasted."""
        return self._tokens

    # --- waiting callers ---------------------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return self._stopped or self._coordinator.finished

    def _pump(self) -> None:
        """Answer all waiting callers that can be answered. Call this after every event."""
        self._tell()
        self._cut_batch()
        if self._over:
            for name, state in self._workers.items():
                if state.answer is not None:
                    self._answer(name, state, [])
        elif self._is_open and not self._handing_over and self._failure is None:
            try:
                self._deal()
            except RunError as error:  # the driver must learn of it, not the caller whose event made room
                self._failure = error
                self._cut_batch()

    def _deal(self) -> None:
        for name, leases in self._queue.grant(self._coordinator, alive=len(self._workers)).items():
            self._leases.update((lease.lease_id, lease) for lease in leases)
            if self._coordinator.under_way(name) == len(leases):
                self._workers[name].since = monotonic()
            self._answer(name, self._workers[name], leases)

    def _answer(self, name: str, state: _ProducerState, leases: list[Lease]) -> None:
        """Return leases to a waiting producer."""
        answer, state.answer = state.answer, None
        self._queue.leave(name)
        if answer is not None and not answer.done():  # if it is done, the caller was cancelled
            answer.set_result(leases)

    def _tell(self) -> None:
        if self._reader is None or self._reader.done():
            return
        if self._consecutive_restarts > _MAX_CONSECUTIVE_RESTARTS:
            every = " and ".join(f"the {what} of a node died {times} time{'s' * (times > 1)}" for what, times in self._restarts.items())
            self._reader.set_exception(
                WorkerLostError(
                    f"{every}, the last {self._consecutive_restarts} times without a group in between; see the runtime's log on its node"
                )
            )
        elif notes := [*self._notes, *self._watch.take_notes()]:
            self._notes = []
            self._reader.set_result(notes)

    def _cut_batch(self) -> None:
        waiter = self._batch
        if waiter is None or waiter.done():
            return
        try:
            self._watch.check()
        except StarvationError as error:
            waiter.set_exception(error)
            return
        if self._failure is not None:
            waiter.set_exception(self._failure)
            return
        if (order := self._coordinator.next_batch()) is not None:
            waiter.set_result(self._addressed(order))
        elif self._interrupted or self._coordinator.waiting_for() is WaitingFor.END:
            waiter.set_result(None)

    def _addressed(self, order: TrainOrder) -> BatchOrder:
        self._order, self._handing_over = order, True
        if self._filtering is None:
            self._filtering = self._watch.next_update()
        stores, tokens = self._by_store(order.lease_ids), self._tokens_of(order)
        flying = {} if self._coordinator.settings.alternating else {"in_flight": float(self._coordinator.status().in_flight)}
        figures = {**self._filtering, **flying}
        return BatchOrder(order=order, stores=stores, filtering=figures, tokens=tokens)

    def _tokens_of(self, order: TrainOrder) -> int:
        return sum(self._kept[lease_id].tokens for lease_id in order.lease_ids)

    def _by_store(self, lease_ids: Sequence[int]) -> dict[str, tuple[int, ...]]:
        stores: dict[str, list[int]] = {}
        for lease_id in lease_ids:
            stores.setdefault(self._kept[lease_id].store, []).append(lease_id)
        return {name: tuple(of_store) for name, of_store in stores.items()}
