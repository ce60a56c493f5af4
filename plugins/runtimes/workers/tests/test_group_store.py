"""What a store of groups keeps: what the schedule wants, until it was trained, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from rlcore_plugin_workers.node_services import GroupStore

from rlcore.api import Group, RunError
from rlcore.api.runtime import DeliveryStatus, GroupSummary
from rlcore.api.schedule import Delivery

Deliver = Callable[[str, str, Sequence[GroupSummary]], Coroutine[Any, Any, list[DeliveryStatus]]]


def answers(*verdicts: DeliveryStatus) -> Deliver:
    """A schedule that judges the groups so, in their order."""

    async def deliver(store: str, worker: str, arrivals: Sequence[GroupSummary]) -> list[DeliveryStatus]:
        return list(verdicts)

    return deliver


def brought(count: int) -> tuple[list[GroupSummary], list[Group]]:
    """Groups of the leases 0, 1, …"""
    arrivals = [GroupSummary(delivery=Delivery(lease_id=n, version=0, accuracy=1.0), prompt_id=f"p{n}", tokens=1) for n in range(count)]
    return arrivals, [Group(prompt_id=f"p{n}", episode=0, prompt_index=n, rollouts=(), scores=()) for n in range(count)]


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def test_groups_that_are_not_wanted_are_dropped_at_once() -> None:
    async def story() -> None:
        verdicts = [DeliveryStatus.KEPT, DeliveryStatus.FILTERED, DeliveryStatus.FAILED, DeliveryStatus.UNKNOWN, DeliveryStatus.MASKED]
        store = GroupStore("s", answers(*verdicts))
        assert await store.deliver("w", *brought(5)) == 2
        missing, here = await store.read([0, 1, 2, 3, 4])
        assert (missing, sorted(here)) == ((1, 2, 3), [0, 4])

    run(story)


def test_groups_that_were_read_stay_until_they_are_trained() -> None:
    async def story() -> None:
        store = GroupStore("s", answers(DeliveryStatus.KEPT, DeliveryStatus.KEPT, DeliveryStatus.KEPT))
        await store.deliver("w", *brought(3))
        await store.read([0, 1])
        assert len(store._groups) == 3  # their batch may become void
        await store.forget([0, 1])
        assert (await store.read([0, 1, 2]))[0] == (0, 1)
        assert len(store._groups) == 1

    run(story)


def test_groups_that_the_schedule_never_heard_of_are_dropped() -> None:
    async def deliver(store: str, worker: str, arrivals: Sequence[GroupSummary]) -> list[DeliveryStatus]:
        raise RunError("the schedule is gone")

    async def story() -> None:
        store = GroupStore("s", deliver)
        with pytest.raises(RunError):
            await store.deliver("w", *brought(2))
        assert len(store._groups) == 0

    run(story)


def test_scored_groups_are_told_once_and_only_where_somebody_observes() -> None:
    async def story() -> None:
        observed, unobserved = (GroupStore("s", answers(DeliveryStatus.FILTERED), keep_scored=keep) for keep in (True, False))
        for store in (observed, unobserved):
            await store.deliver("w", *brought(1))
        assert [group.prompt_id for group in await observed.take_scored()] == ["p0"]
        assert await observed.take_scored() == await unobserved.take_scored() == []

    run(story)
