"""How the groups of a batch come from the stores to the trainer ranks: to each those that it computes on, and outlines of the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlcore.api.schedule import TrainOrder
from rlcore_plugin_workers.driver_inbox import DriverInbox
from rlcore_plugin_workers.schedule_service import Order
from rlcore_plugin_workers.site import Site
from rlcore_plugin_workers.trainer_ranks import Ranks
from rlcore_plugin_workers.workers import WorkerDiedError

__all__ = ["BatchReader"]

_WORTH_SHARING = 8192
"""Tokens a group, on average, from which on a batch is shared out before it is sent: outlines cost time by the rollout, tokens by the
token. With 8 rollouts of 1,000 tokens the two are about equal on one host."""


@dataclass(frozen=True, slots=True)
class _StoreRead:
    """A read of one store. ``whose``: which ranks it is for; ``arguments`` of the store's method, behind the leases."""

    whose: Any
    store: str
    method: str
    leases: tuple[int, ...]
    arguments: tuple[bool, ...] = ()

    def call(self, stores: Mapping[str, Any]) -> Future[Any]:
        answer: Future[Any] = stores[self.store].call(self.method, self.leases, *self.arguments)
        return answer


class BatchReader:
    """For the driver's thread. What a store answers is only passed on: on Ray a reference.

    If ranks share batches, and this one has many tokens, all of them get outlines of it first and share it out, each alone and to the same
    result; then each gets whole what it computes on. While they train, both is done ahead with what the next batch is likely to be.
    """

    def __init__(self, site: Site, inbox: DriverInbox, ranks: Ranks) -> None:
        self._site, self._inbox, self._ranks = site, inbox, ranks
        self._count = len(ranks.workers)
        self._groups: list[list[Any]] = []
        self._planned: tuple[TrainOrder, list[Collection[int]]] | None = None
        self._preloaded: list[set[int]] = [set()] * self._count

    def take(self) -> list[list[Any]]:
        """What was fetched, by rank."""
        groups, self._groups = self._groups, []
        return groups

    def fetch(self, order: Order) -> list[int]:
        """Have the stores put the groups where the ranks can read them; the leases of those that no store has: all of a store that died."""
        shared = self._shares(order)
        if shared and (self._planned is None or self._planned[0] != order.order):
            outlines, absent = self._read(self._outlines(order))
            if absent:
                return absent
            self._planned = order.order, [*self._ranks.plan(order, self._by_rank(outlines, self._ranks.outlined))]
        needed = self._planned[1] if shared and self._planned is not None else None
        found, absent = self._read(self._whole(order, needed, self._preloaded))
        self._groups = self._by_rank(found, self._places(needed))
        return absent

    def _shares(self, order: Order) -> bool:
        return self._ranks.shared and order.tokens >= _WORTH_SHARING * len(order.order.lease_ids)

    def preload(self, upcoming: Future[Any]) -> None:
        """Begin to bring the groups of the next batch to the ranks, beside what they do. ``upcoming``: ``ScheduleService.upcoming``."""
        self._preloaded, self._planned = [set()] * self._count, None
        self._inbox.watch(upcoming, self._ahead)

    # --- what is read ------------------------------------------------------------------------------------------------

    def _outlines(self, order: Order) -> list[_StoreRead]:
        kinds = dict.fromkeys(self._ranks.outlined)
        return [_StoreRead(kind, store, "outlines", tuple(leases), kind) for kind in kinds for store, leases in order.stores.items()]

    def _places(self, needed: Sequence[Collection[int]] | None) -> list[int]:
        """By rank; ranks of one place need the same groups. ``needed``: by rank, None if all need all of them."""
        return [0] * self._count if needed is None else self._ranks.places

    def _whole(self, order: Order, needed: Sequence[Collection[int]] | None, here: Sequence[Collection[int]]) -> list[_StoreRead]:
        """What the ranks of each place need and have not."""
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

    def _read(self, requests: Sequence[_StoreRead]) -> tuple[list[tuple[_StoreRead, Any]], list[int]]:
        """(request, groups) of each that was answered; the leases whose groups no store has."""
        stores = self._site.stores()
        found: dict[int, Any] = {}
        absent: dict[int, Sequence[int]] = {}

        def arrived(number: int, value: Any, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, WorkerDiedError):
                raise error
            absent[number], found[number] = (requests[number].leases, None) if error is not None else value

        def gone() -> list[int]:  # a store may be given up while it is asked
            here = self._site.stores()
            return [number for number, asked in enumerate(requests) if number not in found and asked.store not in here]

        for number, asked in enumerate(requests):
            if asked.store in stores:
                self._inbox.watch(asked.call(stores), partial(arrived, number))
        self._inbox.until(lambda: len(found) + len(gone()) == len(requests))
        absent |= {number: requests[number].leases for number in gone()}
        lost = dict.fromkeys(lease_id for leases in absent.values() for lease_id in leases)
        return [(requests[number], groups) for number, groups in sorted(found.items())], list(lost)

    # --- ahead -------------------------------------------------------------------------------------------------------

    def _ahead(self, upcoming: Any, error: BaseException | None) -> None:
        if error is not None or not upcoming.order.lease_ids:
            return
        if self._shares(upcoming):
            self._when_read(self._outlines(upcoming), partial(self._share_ahead, upcoming))
        else:
            self._bring_shares(upcoming, None)

    def _share_ahead(self, order: Order, outlines: Sequence[tuple[_StoreRead, Any]]) -> None:
        calls = self._ranks.plan_ahead(order, self._by_rank(outlines, self._ranks.outlined))
        self._when_all(calls, lambda answers: self._bring_shares(order, self._ranks.agreed(answers)))

    def _bring_shares(self, order: Order, needed: list[Any] | None) -> None:
        def arrived(leases: list[set[int]]) -> None:
            self._preloaded, self._planned = leases, None if needed is None else (order.order, needed)

        def read(found: Sequence[tuple[_StoreRead, Any]]) -> None:
            self._ranks.preload(self._by_rank(found, self._places(needed)), arrived)

        self._when_read(self._whole(order, needed, [()] * self._count), read)

    def _when_read(self, requests: Sequence[_StoreRead], then: Callable[[list[tuple[_StoreRead, Any]]], None]) -> None:
        """``then`` once all of them are answered; never if one is not: what is not here comes with its batch."""
        stores = self._site.stores()
        if requests and all(asked.store in stores for asked in requests):
            calls = [asked.call(stores) for asked in requests]
            self._when_all(calls, lambda values: then([(asked, value[1]) for asked, value in zip(requests, values, strict=True)]))

    def _when_all(self, calls: Sequence[Future[Any]], then: Callable[[list[Any]], None]) -> None:
        values: dict[int, Any] = {}

        def arrived(number: int, value: Any, error: BaseException | None) -> None:
            if error is None:
                values[number] = value
                if len(values) == len(calls):
                    then([values[place] for place in range(len(calls))])

        for number, call in enumerate(calls):
            self._inbox.watch(call, partial(arrived, number))
