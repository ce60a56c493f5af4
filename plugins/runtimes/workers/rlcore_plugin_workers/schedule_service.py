"""The coordinator behind an event loop: many producers, stores and one driver talk to it; whoever must wait is parked, never polls.

``ScheduleService`` is a plain asyncio object. The Ray runtime makes an actor of it; tests drive it as it is. It sees names and numbers
only: groups stay in the stores that hold them.
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
"""Deaths of stores and judges in a row, without a delivery in between, that a run lives with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryBatch:
    """Groups that a producer delivers at a time, which a store holds."""

    store: str
    worker: str
    arrivals: tuple[GroupSummary, ...]


DeliveryResult = list[DeliveryStatus] | ValueError
"""What the coordinator made of a delivery_batch: one verdict for each group; or the error, after which none of its groups is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOrder:
    """A batch to train: the coordinator's order, the store of each of its groups, figures of what the filter took out for it; ``tokens``:
    how many were generated for those of its groups that are not masked."""

    order: TrainOrder
    stores: Mapping[str, tuple[int, ...]]
    filtering: Mapping[str, float]
    tokens: int = 0


@dataclass(slots=True)
class _ProducerState:
    """A producer that lives. ``asks``: how many leases it waits for, ``answer`` where they go, None where it waits for none;
    ``groups``: how many it delivered; ``since``: when it delivered the last one, or got a lease while it had none."""

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
    """One coordinator, its filter watch, and everybody who waits for it. Nothing is leased before the first
    ``next_batch``: an evaluation at the start has the engines alone."""

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
        self._interrupted = self._interrupted_next = False
        self._batch: asyncio.Future[BatchOrder | None] | None = None
        self._order: TrainOrder | None = None
        self._filtering: Mapping[str, float] | None = None
        self._tokens = TokenCounts()
        self._failures: list[dict[str, Any]] = []
        self._state_waiters: list[asyncio.Future[None]] = []
        self._reader: asyncio.Future[list[str]] | None = None
        self._notes: list[str] = []
        self._restarts: dict[str, int] = {}
        self._consecutive_restarts = 0

    # --- producers ---------------------------------------------------------------------------------------------------

    async def join(self, worker: str) -> None:
        """A producer lives from here on, and may lease."""
        self._workers[worker] = _ProducerState()

    async def lease(self, worker: str, k: int, serving: int) -> list[Lease]:
        """At least one lease and at most ``k``; waits until there is one. [] where none will ever follow, or the worker was lost.

        On-policy (staleness 0) leases are dealt only once every producer waits, so that who gets which prompt does not depend on timing.
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
        """The producer serves these weights from here on; a lease that it waits for is of this version."""
        if (state := self._workers.get(worker)) is not None:
            state.serving = max(version, state.serving)
            if state.answer is not None:
                self._queue.wait(worker, asks=state.asks, serving=state.serving)
            self._pump()

    async def deliver(self, store: str, worker: str, arrivals: Sequence[GroupSummary]) -> list[DeliveryStatus]:
        """One verdict for each group; the store keeps those that are ``kept`` and drops the rest. Raises ValueError, and records nothing,
        for a version that the group cannot have (``Coordinator.deliver``)."""
        result = self._receive(DeliveryBatch(store=store, worker=worker, arrivals=tuple(arrivals)))
        if isinstance(result, ValueError):
            raise result
        self._pump()
        return result

    async def deliver_batches(self, delivery_batches: Sequence[DeliveryBatch]) -> list[DeliveryResult]:
        """As many calls of ``deliver`` in one: what is wrong with one delivery_batch is no business of the others. Batches are cut and
        leases are dealt when all of them have been taken."""
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
        if lease is not None:  # else it was booked before, or came too late
            self._watch.saw(arrival.delivery, verdict)
            self._tokens = self._tokens.plus(arrival.tokens, wasted=verdict is not DeliveryStatus.KEPT, cut=arrival.cut_tokens)
            if verdict is DeliveryStatus.FAILED:
                ended = {"step": self._coordinator.version + 1, "episode": lease.episode}
                self._failures.append({**ended, "prompt_id": arrival.prompt_id, "reason": arrival.reason})
        if verdict.kept:
            # What is masked is counted as wasted already.
            self._kept[lease_id] = _KeptGroup(store, arrival.tokens if verdict is DeliveryStatus.KEPT else 0)

    # --- the driver --------------------------------------------------------------------------------------------------

    async def next_batch(self, trained: int | None = None) -> BatchOrder | None:
        """The groups of the next update; waits for them. None at the end, or once interrupted. ``trained``: the version that the update
        under way has made, which is booked first: one call, for two could overtake each other.

        Raises StarvationError where the filter leaves nothing to train on, RunError for another version than the schedule's.
        """
        if trained is not None:
            await self.updated(trained)
        self._is_open, self._handing_over = True, False
        batch: asyncio.Future[BatchOrder | None] = asyncio.get_running_loop().create_future()
        self._batch = batch
        self._pump()
        return await batch

    async def training(self) -> None:
        """The ranks have the batch. Leases are dealt from now on: what producers begin with them must not keep a batch waiting. Who does
        not call it lets the producers rest until the next batch is asked for."""
        self._handing_over = False
        self._pump()

    async def upcoming(self) -> BatchOrder:
        """The next batch as it would be of what is ready now, if nothing came before it: it can be brought to the ranks meanwhile."""
        order = self._coordinator.upcoming_order()
        return BatchOrder(order=order, stores=self._by_store(order.lease_ids), filtering={}, tokens=self._tokens_of(order))

    async def updated(self, version: int) -> None:
        """The update under way has made this version."""
        if self._order is None or self._order.version + 1 != version:
            raise RunError(f"the trainer made version {version}, and the schedule waits for {self._coordinator.version + 1} of a batch")
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
        """The payloads of these groups are gone: their prompts are leased anew. True where the batch under way is void thereby."""
        void = False
        for lease_id in lease_ids:
            kept = self._kept.pop(lease_id, None)
            self._tokens = self._tokens.lost(kept.tokens if kept else 0)
            void |= self._coordinator.group_lost(lease_id)
        if void:
            self._order, self._handing_over = None, False  # its figures of the filter are the next one's
        self._pump()
        return void

    async def store_lost(self, store: str) -> None:
        """The store is gone with every group that it held. Those of the batch under way are the driver's business, who may have read them
        before: it says ``groups_lost`` where it has not."""
        under_way = self._order.lease_ids if self._order is not None else ()
        await self.groups_lost([lease_id for lease_id, kept in self._kept.items() if kept.store == store and lease_id not in under_way])

    async def worker_lost(self, worker: str) -> tuple[int, int]:
        """The producer is gone: what it had in flight is leased anew. Returns (leases that ended, groups that it had delivered)."""
        state = self._workers.pop(worker, None)
        ended = self._coordinator.worker_lost(worker)
        for lease_id in ended:
            self._leases.pop(lease_id, None)
        if state is not None and state.answer is not None:
            self._answer(worker, state, [])
        self._pump()
        return len(ended), state.groups if state else 0

    async def overdue(self, seconds: float) -> list[str]:
        """The producers that have leases, and for so many seconds have delivered no group."""
        now = monotonic()
        return [name for name, state in self._workers.items() if now - state.since > seconds and self._coordinator.under_way(name)]

    async def interrupt(self, after_delivery: bool = False) -> None:
        """Whoever waits for a batch gets None: at once, or if the next delivery does not complete one."""
        self._interrupted_next = after_delivery
        self._interrupted = self._interrupted or not after_delivery
        self._pump()

    async def stop(self) -> None:
        """Nothing is leased any more."""
        self._stopped = True
        self._pump()

    async def status(self) -> Status:
        """Where the schedule stands."""
        return self._coordinator.status()

    async def state(self, version: int) -> dict[str, Any]:
        """The states of ``coordinator`` and ``watch``, JSON-able, as this version, which is waited for, was reached. What came since is
        left out: its groups are gone with this process, and what is made again must not have been counted before."""
        while self._coordinator.version < version:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._state_waiters.append(reached)
            await reached
        return self._state

    def _state_now(self) -> dict[str, Any]:
        return {"coordinator": self._coordinator.state(), "watch": self._watch.state()}

    async def watch(self) -> FilterMonitor:
        """What the filter saw; notes that nobody has taken stay where they are."""
        return self._watch

    async def next_notes(self) -> list[str]:
        """What a person should hear of now; waits until there is something. WorkerLostError where services die again and again, and nothing
        is delivered meanwhile."""
        reader: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._reader = reader
        self._tell()
        return await reader

    async def lifetime(self) -> None:
        """Never returns; who waits for it learns at once that this process died."""
        await asyncio.Event().wait()

    async def lives(self) -> None:
        """Return, which shows that its process is not stopped."""

    async def restarted(self, what: str) -> None:
        """A store or a judge died, and another one is there in its place."""
        self._restarts[what] = self._restarts.get(what, 0) + 1
        self._consecutive_restarts += 1
        self._notes.append(f"warning: the {what} of a node died and was started anew; what it had is made again")
        self._pump()

    async def restarts(self) -> Mapping[str, int]:
        """How often each kind of service was started anew."""
        return self._restarts

    async def take_failures(self) -> list[dict[str, Any]]:
        """The prompts that failed since the last call: ``step``, the update that was awaited or made then, ``episode``, ``prompt_id``,
        ``reason``."""
        failures, self._failures = self._failures, []
        return failures

    async def tokens(self) -> TokenCounts:
        """How much was generated, and how much of it for nothing."""
        return self._tokens

    # --- who waits ---------------------------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return self._stopped or self._coordinator.finished

    def _pump(self) -> None:
        """After every event: give to whoever waits what can be given now."""
        self._tell()
        self._cut_batch()
        if self._over:
            for name, state in self._workers.items():
                if state.answer is not None:
                    self._answer(name, state, [])
        elif self._is_open and not self._handing_over:
            self._deal()

    def _deal(self) -> None:
        for name, leases in self._queue.grant(self._coordinator, alive=len(self._workers)).items():
            self._leases.update((lease.lease_id, lease) for lease in leases)
            if self._coordinator.under_way(name) == len(leases):
                self._workers[name].since = monotonic()
            self._answer(name, self._workers[name], leases)

    def _answer(self, name: str, state: _ProducerState, leases: list[Lease]) -> None:
        """Who waited has its leases, and waits no longer."""
        answer, state.answer = state.answer, None
        self._queue.leave(name)
        if answer is not None and not answer.done():  # done: whoever asked is gone
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
        if (order := self._coordinator.next_batch()) is not None:
            waiter.set_result(self._addressed(order))
        elif self._interrupted or self._coordinator.waiting_for() is WaitingFor.END:
            waiter.set_result(None)

    def _addressed(self, order: TrainOrder) -> BatchOrder:
        self._order, self._handing_over = order, True
        if self._filtering is None:
            self._filtering = self._watch.next_update()
        stores, tokens = self._by_store(order.lease_ids), self._tokens_of(order)
        return BatchOrder(order=order, stores=stores, filtering=self._filtering, tokens=tokens)

    def _tokens_of(self, order: TrainOrder) -> int:
        return sum(self._kept[lease_id].tokens for lease_id in order.lease_ids)

    def _by_store(self, lease_ids: Sequence[int]) -> dict[str, tuple[int, ...]]:
        stores: dict[str, list[int]] = {}
        for lease_id in lease_ids:
            stores.setdefault(self._kept[lease_id].store, []).append(lease_id)
        return {name: tuple(of_store) for name, of_store in stores.items()}
