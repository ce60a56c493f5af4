"""The coordinator behind an event loop: who waits is parked and answered, what is lost is leased anew, the ledger always adds up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rlcore_plugin_workers.node_services import GroupStore
from rlcore_plugin_workers.schedule_service import DeliveryBatch, ScheduleService

from rlcore.api import Group, Lease, RunError
from rlcore.api.runtime import DeliveryStatus, FilterMonitor, GroupSummary, StarvationError, TokenCounts, WorkerLostError
from rlcore.api.schedule import Coordinator, Delivery, ScheduleSettings


def service(prompts: int = 8, batch: int = 2, staleness: int = 0, limit: int | None = None, **more: Any) -> ScheduleService:
    schedule = ScheduleSettings(
        prompts=prompts, train_batch_size=batch, n_sampled=1, buffer_limit=(staleness + 1) * batch, max_staleness=staleness, **more
    )
    return ScheduleService(Coordinator(schedule), FilterMonitor(bounds=schedule.filter_range, by="accuracy", batch_size=batch, limit=limit))


def arrival(lease: Lease, version: int | None = None, accuracy: float = 0.5, failed: str = "") -> GroupSummary:
    delivery = Delivery(lease_id=lease.lease_id, version=lease.version if version is None else version, accuracy=accuracy, failed=failed)
    return GroupSummary(delivery=delivery, prompt_id=f"p{lease.prompt_index}", tokens=10, reason=failed and f"{failed}: why")


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(story(), 20)

    asyncio.run(bounded())


async def parked(call: Awaitable[Any]) -> asyncio.Future[Any]:
    task = asyncio.ensure_future(call)
    for _ in range(3):
        await asyncio.sleep(0)
    return task


def test_nothing_is_leased_before_the_first_batch_is_asked_for() -> None:
    async def story() -> None:
        schedule = service(staleness=1)
        await schedule.join("a")
        leases = await parked(schedule.lease("a", 2, 0))
        assert not leases.done()
        await parked(schedule.next_batch())
        assert len(await leases) == 2

    run(story)


def test_a_version_is_served_when_no_producer_is_behind_it() -> None:
    async def story() -> None:
        schedule = service()
        for name in ("a", "b", "loads"):
            await schedule.join(name)
        await schedule.serving("a", 1)
        await schedule.serving("b", 0)
        served = await parked(schedule.served(1))
        assert not served.done()
        await schedule.serving("b", 2)
        await served
        behind = await parked(schedule.served(2))
        assert not behind.done()
        await schedule.worker_lost("a")
        await behind
        behind = await parked(schedule.served(3))
        assert not behind.done()
        await schedule.interrupt(after_delivery=True)
        await behind

    run(story)


def test_on_policy_leases_are_dealt_in_turns_once_everybody_waits() -> None:
    async def story() -> None:
        schedule = service(batch=4)
        for name in ("b", "a"):
            await schedule.join(name)
        await parked(schedule.next_batch())
        first = await parked(schedule.lease("b", 4, 0))
        assert not first.done()
        second = await parked(schedule.lease("a", 4, 0))
        assert [lease.lease_id for lease in await second] == [0, 2]
        assert [lease.lease_id for lease in await first] == [1, 3]

    run(story)


def test_what_is_likely_to_come_next_is_the_order_that_comes() -> None:
    async def story() -> None:
        schedule = service(batch=2, staleness=1)
        await schedule.join("a")
        batch = await parked(schedule.next_batch())
        leases = await schedule.lease("a", 4, 0)
        assert (await schedule.upcoming()).order.lease_ids == ()
        await schedule.deliver("s", "a", [arrival(lease) for lease in leases[:2]])
        first = await batch
        assert first is not None
        assert first.filtering == {"in_flight": 2.0}
        await schedule.training()
        await schedule.deliver("s", "a", [arrival(leases[3]), arrival(leases[2])])
        upcoming = await schedule.upcoming()
        assert upcoming.tokens == 20
        order = await schedule.next_batch(1)
        assert order is not None
        assert (order.order, order.stores, order.tokens) == (upcoming.order, upcoming.stores, upcoming.tokens)

    run(story)


def test_parcels_are_delivered_as_if_each_came_alone() -> None:
    """What is wrong with one is told in its place, and records nothing; the others' verdicts, books and leases are as ever."""

    async def story() -> None:
        schedule = service(batch=2, staleness=1)
        for name in ("a", "b"):
            await schedule.join(name)
        batch = await parked(schedule.next_batch())
        a, b = await schedule.lease("a", 2, 0), await schedule.lease("b", 2, 0)
        wrong = replace(arrival(b[0]), delivery=replace(arrival(b[0]).delivery, version=9))
        delivery_batches = [
            DeliveryBatch(store="north", worker="a", arrivals=(arrival(a[0]),)),
            DeliveryBatch(store="north", worker="b", arrivals=(wrong, arrival(b[1]))),
            DeliveryBatch(store="south", worker="a", arrivals=(arrival(a[1]),)),
        ]
        kept, refused, also = await schedule.deliver_batches(delivery_batches)
        assert (kept, also) == ([DeliveryStatus.KEPT], [DeliveryStatus.KEPT])
        assert isinstance(refused, ValueError)
        assert str(b[0].lease_id) in str(refused)
        order = await batch
        assert order is not None
        assert order.stores == {"north": (a[0].lease_id,), "south": (a[1].lease_id,)}
        assert await schedule.worker_lost("b") == (2, 0)  # leased anew, and nothing was delivered
        assert await schedule.worker_lost("a") == (0, 2)

    run(story)


def test_on_policy_waits_for_the_producer_that_has_not_yet_the_new_weights() -> None:
    async def story() -> None:
        schedule = service(batch=1)
        await schedule.join("a")
        await schedule.join("b")
        batch = await parked(schedule.next_batch())
        a = await parked(schedule.lease("a", 4, 0))
        b = await parked(schedule.lease("b", 4, 0))
        await schedule.deliver("s", "a", [arrival(lease) for lease in await a])
        await batch
        await parked(schedule.next_batch(trained=1))
        again = await parked(schedule.lease("a", 4, 1))
        assert not again.done()
        assert not b.done()
        await schedule.serving("b", 1)
        assert len(await again) == 1  # a comes first, and one prompt is all that a batch holds

    run(story)


def test_a_batch_is_addressed_by_store() -> None:
    async def story() -> None:
        schedule = service(batch=2, staleness=1)
        await schedule.join("a")
        batch = await parked(schedule.next_batch())
        leases = await schedule.lease("a", 2, 0)
        await schedule.deliver("north", "a", [arrival(leases[0])])
        assert not batch.done()
        await schedule.deliver("south", "a", [arrival(leases[1])])
        order = await batch
        assert order.stores == {"north": (0,), "south": (1,)}
        await parked(schedule.next_batch(trained=1))
        assert (await schedule.status()).version == 1

    run(story)


def test_while_a_batch_is_handed_over_nothing_is_dealt_and_then_the_next_one_is_named() -> None:
    async def story() -> None:
        schedule = service(batch=1, staleness=3)
        await schedule.join("a")
        batch = await parked(schedule.next_batch())
        leases = await schedule.lease("a", 2, 0)
        await schedule.deliver("s", "a", [arrival(lease) for lease in leases])
        (first,) = (await batch).order.lease_ids
        more = await parked(schedule.lease("a", 1, 0))
        assert not more.done()
        (second,) = {lease.lease_id for lease in leases} - {first}
        await schedule.training()
        assert (await schedule.upcoming()).stores == {"s": (second,)}
        assert len(await more) == 1
        batch = await parked(schedule.next_batch(trained=1))
        assert (await batch).order.lease_ids == (second,)

    run(story)


@pytest.mark.parametrize("overlaps", [False, True])
def test_who_does_not_say_that_it_trains_has_nothing_dealt_until_it_asks_for_the_next_batch(overlaps: bool) -> None:
    async def story() -> None:
        schedule = service(batch=1, staleness=1)
        await schedule.join("a")
        batch = await parked(schedule.next_batch())
        (lease,) = await schedule.lease("a", 1, 0)
        await schedule.deliver("s", "a", [arrival(lease)])
        await batch
        more = await parked(schedule.lease("a", 1, 0))
        if overlaps:
            await schedule.training()
        await schedule.updated(1)
        await schedule.serving("a", 1)
        await parked(schedule.status())
        assert more.done() is overlaps
        await parked(schedule.next_batch())
        assert len(await more) == 1

    run(story)


def test_a_version_that_no_batch_makes_is_refused() -> None:
    async def story() -> None:
        with pytest.raises(RunError, match=r"made version 3, but the schedule waits for version 1"):
            await service().next_batch(trained=3)

    run(story)


def test_the_state_of_a_version_waits_for_it() -> None:
    async def story() -> None:
        schedule = service(batch=1, staleness=1)
        await schedule.join("a")
        batch = await parked(schedule.next_batch())
        (lease, *_) = await schedule.lease("a", 1, 0)
        await schedule.deliver("s", "a", [arrival(lease)])
        await batch
        state = await parked(schedule.state(1))
        assert not state.done()
        await parked(schedule.next_batch(trained=1))
        assert (await state)["coordinator"]["version"] == 1

    run(story)


def test_a_store_that_dies_while_its_groups_are_trained_does_not_void_the_batch() -> None:
    async def story() -> None:
        schedule = service(batch=1, staleness=1)
        await schedule.join("a")
        batch = await parked(schedule.next_batch())
        leases = await schedule.lease("a", 2, 0)
        await schedule.deliver("s", "a", [arrival(lease) for lease in leases])
        order = await batch
        await schedule.store_lost("s")
        batch = await parked(schedule.next_batch(trained=1))
        status = await schedule.status()
        assert (status.trained, status.version) == (1, 1)
        assert not batch.done()  # the other group was lost with the store, and is leased anew
        (again, *_) = await schedule.lease("a", 1, 0)
        assert again.prompt_index not in {leases[n].prompt_index for n in range(2) if leases[n].lease_id in order.order.lease_ids}

    run(story)


def test_on_policy_nothing_is_dealt_while_anybody_has_something_under_way() -> None:
    async def story() -> None:
        schedule = service(prompts=8, batch=8)
        await schedule.join("a")
        await schedule.join("b")
        await parked(schedule.next_batch())
        first = await parked(schedule.lease("a", 2, 0))
        second = await parked(schedule.lease("b", 2, 0))
        (one, _) = await first
        await second
        await schedule.deliver("s", "a", [arrival(one)])
        again = await parked(schedule.lease("a", 1, 0))
        other = await parked(schedule.lease("b", 2, 0))
        assert not again.done()
        assert not other.done()

    run(story)


def test_a_late_delivery_of_a_lost_worker_is_unknown_and_its_prompt_is_leased_again() -> None:
    async def story() -> None:
        schedule = service(batch=2, staleness=1)
        await schedule.join("a")
        await parked(schedule.next_batch())
        leases = await schedule.lease("a", 2, 0)
        assert await schedule.worker_lost("a") == (2, 0)
        assert await schedule.deliver("s", "a", [arrival(leases[0])]) == [DeliveryStatus.UNKNOWN]
        assert await schedule.lease("a", 2, 0) == []  # a late call of the dead
        await schedule.join("a.1")
        again = await schedule.lease("a.1", 2, 0)
        assert [lease.prompt_index for lease in again] == [lease.prompt_index for lease in leases]

    run(story)


def test_a_lost_worker_that_waits_is_answered() -> None:
    async def story() -> None:
        schedule = service()
        await schedule.join("a")
        waiting = await parked(schedule.lease("a", 2, 0))
        await schedule.worker_lost("a")
        assert await waiting == []

    run(story)


def test_groups_lost_with_their_store_void_the_batch_and_are_made_again() -> None:
    async def story() -> None:
        schedule = service(batch=2, staleness=1)
        await schedule.join("a")
        batch = await parked(schedule.next_batch())
        leases = await schedule.lease("a", 2, 0)
        await schedule.deliver("s", "a", [arrival(lease) for lease in leases])
        await batch
        assert await schedule.groups_lost([leases[0].lease_id])
        batch = await parked(schedule.next_batch())
        (again, *_) = await schedule.lease("a", 1, 0)
        assert again.prompt_index == leases[0].prompt_index
        await schedule.deliver("s", "a", [arrival(again)])
        assert set((await batch).order.lease_ids) == {leases[1].lease_id, again.lease_id}
        assert (await schedule.tokens()).wasted == 10

    run(story)


def test_what_oversampling_cut_is_generated_and_wasted_whatever_becomes_of_its_group() -> None:
    async def story() -> None:
        schedule = service(batch=2, staleness=1)
        await schedule.join("a")
        await parked(schedule.next_batch())
        leases = await schedule.lease("a", 2, 0)
        await schedule.deliver("s", "a", [replace(arrival(leases[0]), cut_tokens=3), arrival(leases[1])])
        assert await schedule.tokens() == TokenCounts(generated=23, wasted=3)
        await schedule.groups_lost([leases[0].lease_id])
        assert await schedule.tokens() == TokenCounts(generated=23, wasted=13)

    run(story)


def test_a_starving_filter_reaches_who_waits_for_a_batch() -> None:
    async def story() -> None:
        schedule = service(prompts=50, batch=1, staleness=1, limit=3, filter_range=(0.1, 0.9), dynamic_batching=True)
        await schedule.join("a")
        notes = await parked(schedule.next_notes())
        batch = await parked(schedule.next_batch())
        for _ in range(6):
            if batch.done():
                break
            for lease in await schedule.lease("a", 1, 0):
                await schedule.deliver("s", "a", [arrival(lease, accuracy=0.0)])
        with pytest.raises(StarvationError, match="the group filter starves the run"):
            await batch
        assert "warning" in (await notes)[0]

    run(story)


def test_failures_are_recorded_with_their_reason() -> None:
    async def story() -> None:
        schedule = service(batch=1, staleness=1)
        await schedule.join("a")
        await parked(schedule.next_batch())
        (lease,) = await schedule.lease("a", 1, 0)
        await schedule.deliver("s", "a", [arrival(lease, failed="timeout")])
        assert await schedule.take_failures() == [
            {"step": 1, "prompt_id": f"p{lease.prompt_index}", "episode": 0, "reason": "timeout: why"}
        ]
        assert await schedule.take_failures() == []

    run(story)


def test_an_interrupt_answers_who_waits_for_a_batch() -> None:
    async def story() -> None:
        schedule = service()
        batch = await parked(schedule.next_batch())
        await schedule.interrupt()
        assert await batch is None

    run(story)


def test_a_service_that_is_started_anew_is_told_and_counted() -> None:
    async def story() -> None:
        schedule = service()
        notes = await parked(schedule.next_notes())
        await schedule.restarted("judge")
        assert await notes == ["warning: the judge of a node died and was restarted; its work is done again"]
        await schedule.restarted("judge")
        assert await schedule.restarts() == {"judge": 2}
        assert len(await schedule.next_notes()) == 1

    run(story)


def test_services_that_die_again_and_again_without_a_delivery_end_the_run() -> None:
    async def story() -> None:
        schedule = service(staleness=1)
        await schedule.join("a")
        await parked(schedule.next_batch())
        for _ in range(10):
            await schedule.restarted("judge")
        (lease,) = await schedule.lease("a", 1, 0)
        await schedule.deliver("s", "a", [arrival(lease)])  # it is of some use
        for _ in range(10):
            await schedule.restarted("judge")
        assert len(await schedule.next_notes()) == 20
        notes = await parked(schedule.next_notes())
        await schedule.restarted("store of groups")
        with pytest.raises(
            WorkerLostError, match=r"the judge of a node died 20 times and the store of groups of a node died 1 time, the last 11 times"
        ):
            await notes

    run(story)


async def _produce(schedule: ScheduleService, store: GroupStore, name: str, dice: random.Random, trouble: float) -> None:
    """A producer that may die with leases in its hands, before or after it delivered."""
    life = 0
    await schedule.join(name)
    worker = name
    while leases := await schedule.lease(worker, dice.randint(1, 3), 2**30):
        for lease in leases:
            await asyncio.sleep(0)
            if dice.random() < trouble:
                await schedule.worker_lost(worker)
                life += 1
                worker = f"{name}.{life}"
                await schedule.join(worker)
                break
            group = Group(
                prompt_id=f"p{lease.prompt_index}", episode=lease.episode, prompt_index=lease.prompt_index, rollouts=(), scores=()
            )
            made = arrival(lease, failed="error" if dice.random() < trouble / 4 else "")
            await store.deliver(worker, [made], [group])
            if dice.random() < trouble:  # a call that was repeated, for its answer was lost
                await store.deliver(worker, [made], [group])


@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.generate])  # a hang is not worth shrinking
@given(seed=st.integers(0, 2**32), staleness=st.integers(0, 3), trouble=st.sampled_from([0.0, 0.1, 0.3]), producers=st.integers(1, 4))
def test_whatever_dies_every_prompt_ends_exactly_once(seed: int, staleness: int, trouble: float, producers: int) -> None:
    dice = random.Random(seed)

    async def story() -> None:
        schedule = service(prompts=11, batch=3, staleness=staleness, episodes=2)
        store = GroupStore("s", schedule.deliver)
        makers = [asyncio.ensure_future(_produce(schedule, store, f"w{number}", dice, trouble)) for number in range(producers)]
        trained: list[tuple[int, int]] = []
        done: int | None = None
        while (order := await schedule.next_batch(done)) is not None:
            done = None
            missing, groups = await store.read(order.stores["s"])
            assert not missing
            lost = [lease_id for lease_id in groups if dice.random() < trouble / 3]
            if lost:
                await store.forget(lost)
                assert await schedule.groups_lost(lost)
                continue
            trained += [(group.episode, group.prompt_index) for group in groups.values()]
            if dice.random() < trouble / 3:  # the store dies while its groups, which have been read, are trained
                await store.forget(range(10_000))
                await schedule.store_lost("s")
            assert order.order.version - min(order.order.versions) <= staleness
            await store.forget(order.stores["s"])
            done = order.order.version + 1
        await asyncio.gather(*makers)
        status = await schedule.status()
        assert len(trained) == len(set(trained)) == status.trained
        assert status.trained + status.failed == 22
        assert len(store._groups) == 0

    run(story)
