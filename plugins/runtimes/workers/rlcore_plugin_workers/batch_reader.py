"""The path of a batch's groups from the stores to the trainer ranks. Each rank receives the groups that it computes on, and outlines of the
others."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rlcore.api.schedule import TrainOrder
from rlcore_plugin_workers.deployment import Deployment
from rlcore_plugin_workers.driver_loop import DriverLoop, answered
from rlcore_plugin_workers.schedule_service import BatchOrder
from rlcore_plugin_workers.trainer_ranks import TrainerRanks
from rlcore_plugin_workers.workers import WorkerDiedError

__all__ = ["BatchReader"]

_WORTH_SHARING = 8192
"""The mean number of tokens a group from which a batch is divided before it is sent. The cost of outlines grows with rollouts, the cost of
groups with tokens. With 8 rollouts of 1,000 tokens the two are about equal on one host."""
_LOOK_SECONDS = 1.0
"""The seconds between two checks that a store is still available, since it may be given up during a call."""


@dataclass(frozen=True, slots=True)
class _StoreRead:
    """A read of one store. ``whose`` says which ranks it is for; ``arguments`` are the arguments of the store's method after the leases."""

    whose: Any
    store: str
    method: str
    leases: tuple[int, ...]
    arguments: tuple[bool, ...] = ()

    def call(self, stores: Mapping[str, Any]) -> Future[Any]:
        answer: Future[Any] = stores[self.store].call(self.method, self.leases, *self.arguments)
        return answer


class BatchReader:
    """Brings the groups of batches to the ranks. For the driver's loop. It only forwards the answers of stores; on Ray they are references.

    If ranks share batches and this batch has many tokens, all ranks first receive outlines of it. Each rank divides the batch by itself,
    with the same result, and then receives whole the groups that it computes on. While the ranks train, both steps run ahead for the batch
    that is likely to be next.
    """

    def __init__(self, deployment: Deployment, driver: DriverLoop, ranks: TrainerRanks) -> None:
        self._deployment, self._driver, self._ranks = deployment, driver, ranks
        self._count = len(ranks.workers)
        self._groups: list[list[Any]] = []
        self._planned: tuple[TrainOrder, list[Collection[int]]] | None = None
        self._preloaded: list[set[int]] = [set()] * self._count

    def take(self) -> list[list[Any]]:
        """Return the fetched groups, by rank."""
        groups, self._groups = self._groups, []
        return groups

    async def fetch(self, order: BatchOrder) -> list[int]:
        """Have the stores send the groups to the ranks. Return the leases whose groups no store has: all those of a store that died."""
        shared = self._shares(order)
        if shared and (self._planned is None or self._planned[0] != order.order):
            outlines, absent = await self._read(self._outlines(order))
            if absent:
                return absent
            self._planned = order.order, [*await self._ranks.plan(order, self._by_rank(outlines, self._ranks.outlined))]
        needed = self._planned[1] if shared and self._planned is not None else None
        found, absent = await self._read(self._whole(order, needed, self._preloaded))
        self._groups = self._by_rank(found, self._places(needed))
        return absent

    def _shares(self, order: BatchOrder) -> bool:
        return self._ranks.shared and order.tokens >= _WORTH_SHARING * len(order.order.lease_ids)

    def preload(self, upcoming: Future[Any]) -> None:
        """Begin to send the groups of the next batch to the ranks while they train. ``upcoming``: a call of
        ``ScheduleService.upcoming``."""
        self._preloaded, self._planned = [set()] * self._count, None
        self._driver.watch(self._ahead(upcoming))

    # --- reads -------------------------------------------------------------------------------------------------------

    def _outlines(self, order: BatchOrder) -> list[_StoreRead]:
        kinds = dict.fromkeys(self._ranks.outlined)
        return [_StoreRead(kind, store, "outlines", tuple(leases), kind) for kind in kinds for store, leases in order.stores.items()]

    def _places(self, needed: Sequence[Collection[int]] | None) -> list[int]:
        """Return a place for each rank; ranks of one place need the same groups. ``needed``: the leases by rank, None if all ranks need all
        groups."""
        return [0] * self._count if needed is None else self._ranks.places

    def _whole(self, order: BatchOrder, needed: Sequence[Collection[int]] | None, here: Sequence[Collection[int]]) -> list[_StoreRead]:
        """Return the reads of the groups that the ranks of each place need and do not have."""
        asked, places = [], self._places(needed)
        for place in dict.fromkeys(places):
            ranks = [rank for rank in range(self._count) if places[rank] == place]
            due = order.order.lease_ids if needed is None else needed[ranks[0]]
            lacking = {lease_id for lease_id in due if not all(lease_id in here[rank] for rank in ranks)}
            for store, leases in order.stores.items():
                if wanted := tuple(lease_id for lease_id in leases if lease_id in lacking):
                    asked.append(_StoreRead(place, store, "read", wanted))
        return asked

    def _by_rank(self, found: Sequence[tuple[_StoreRead, Any]], whose: Sequence[Any]) -> list[list[Any]]:
        return [[groups for asked, groups in found if asked.whose == one] for one in whose]

    async def _read(self, requests: Sequence[_StoreRead]) -> tuple[list[tuple[_StoreRead, Any]], list[int]]:
        """Return (request, groups) of each read that was answered, and the leases whose groups no store has."""
        stores = self._deployment.stores()
        answers = [answered(asked.call(stores)) if asked.store in stores else None for asked in requests]
        found: list[tuple[_StoreRead, Any]] = []
        absent: dict[int, None] = {}
        for asked, answer in zip(requests, answers, strict=True):
            missing, groups = (asked.leases, None) if answer is None else await self._of_store(asked, answer)
            absent |= dict.fromkeys(missing)
            found += [(asked, groups)] * (groups is not None)
        return found, list(absent)

    async def _of_store(self, asked: _StoreRead, answer: asyncio.Future[Any]) -> tuple[Sequence[int], Any]:
        """Return the leases that the store lacks, and the groups of the others: all leases and None if the store is gone."""
        while asked.store in self._deployment.stores():
            await asyncio.wait([answer], timeout=_LOOK_SECONDS)
            if answer.done():
                break
        if not answer.done() or isinstance(answer.exception(), WorkerDiedError):
            return asked.leases, None
        lacking, groups = answer.result()
        return lacking, groups

    # --- work ahead --------------------------------------------------------------------------------------------------

    async def _ahead(self, upcoming: Future[Any]) -> None:
        """Read the next batch, divide it, and send it to the ranks. If a call fails, the missing groups are sent with their batch."""
        order, needed = next(iter(await self._values([upcoming])), None), None
        if order is None or not order.order.lease_ids:
            return
        if self._shares(order):
            outlines = await self._read_ahead(self._outlines(order))
            if not outlines:
                return
            answers = await self._values(await self._ranks.plan_ahead(order, self._by_rank(outlines, self._ranks.outlined)))
            if not answers:
                return
            needed = self._ranks.agreed(answers)
        if found := await self._read_ahead(self._whole(order, needed, [()] * self._count)):
            leases = await self._values(await self._ranks.preload(self._by_rank(found, self._places(needed))))
            if leases:
                self._preloaded = [set(of_rank) for of_rank in leases]
                self._planned = None if needed is None else (order.order, [*needed])

    async def _read_ahead(self, requests: Sequence[_StoreRead]) -> list[tuple[_StoreRead, Any]]:
        """Return (request, groups) of all reads, or [] if one fails."""
        stores = self._deployment.stores()
        calls = [asked.call(stores) for asked in requests] if all(asked.store in stores for asked in requests) else []
        return [(asked, groups) for asked, (_, groups) in zip(requests, await self._values(calls), strict=False)]

    async def _values(self, calls: Sequence[Future[Any]]) -> list[Any]:
        """Return the values of all calls, or [] if one fails."""
        try:
            return await self._driver.values(calls)
        except Exception:  # fetching the batch will report the error
            return []
