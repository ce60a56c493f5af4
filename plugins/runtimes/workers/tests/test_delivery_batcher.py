"""Deliveries that are gathered: each passes once, in order, at once if no call is under way; an error reaches those whose call it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_plugin_workers.delivery_batcher import DeliveryBatcher
from rlcore_plugin_workers.schedule_service import DeliveryBatch, DeliveryResult

from rlcore.api import RunError
from rlcore.api.runtime import DeliveryStatus, GroupSummary
from rlcore.api.schedule import Delivery


def arrivals(*lease_ids: int) -> list[GroupSummary]:
    return [GroupSummary(delivery=Delivery(lease_id=n, version=0, accuracy=1.0), prompt_id=f"p{n}", tokens=1) for n in lease_ids]


def leases(delivery_batch: DeliveryBatch) -> list[int]:
    return [arrival.delivery.lease_id for arrival in delivery_batch.arrivals]


class Slow:
    """A schedule whose calls end when the test says so. Groups of odd leases are filtered, and lease 13 is refused."""

    def __init__(self) -> None:
        self.calls: list[list[DeliveryBatch]] = []
        self.ends: list[asyncio.Future[None]] = []

    async def deliver_batches(self, delivery_batches: Sequence[DeliveryBatch]) -> list[DeliveryResult]:
        self.calls.append(list(delivery_batches))
        self.ends.append(asyncio.get_running_loop().create_future())
        await self.ends[-1]
        return [self._result(delivery_batch) for delivery_batch in delivery_batches]

    def _result(self, delivery_batch: DeliveryBatch) -> DeliveryResult:
        if 13 in leases(delivery_batch):
            return ValueError("lease 13 was delivered with tokens of version 99")
        return [DeliveryStatus.FILTERED if lease_id % 2 else DeliveryStatus.KEPT for lease_id in leases(delivery_batch)]


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 20))


def test_a_delivery_goes_at_once_and_what_comes_meanwhile_goes_together() -> None:
    async def story() -> None:
        schedule = Slow()
        gathered = DeliveryBatcher(schedule.deliver_batches)
        first = asyncio.create_task(gathered.deliver("s", "a", arrivals(0)))
        await settled()
        assert [leases(delivery_batch) for delivery_batch in schedule.calls[0]] == [[0]]
        others = [asyncio.create_task(gathered.deliver("s", worker, arrivals(n))) for worker, n in (("b", 1), ("a", 2), ("c", 4))]
        await settled()
        assert len(schedule.calls) == 1
        schedule.ends[0].set_result(None)
        await settled()
        assert [(delivery_batch.worker, leases(delivery_batch)) for delivery_batch in schedule.calls[1]] == [
            ("b", [1]),
            ("a", [2]),
            ("c", [4]),
        ]
        assert await first == [DeliveryStatus.KEPT]
        schedule.ends[1].set_result(None)
        assert await asyncio.gather(*others) == [[DeliveryStatus.FILTERED], [DeliveryStatus.KEPT], [DeliveryStatus.KEPT]]
        again = asyncio.create_task(gathered.deliver("s", "a", arrivals(6)))  # nothing is left of what went before
        await settled()
        schedule.ends[2].set_result(None)
        assert await again == [DeliveryStatus.KEPT]

    run(story)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.sampled_from(["end", "break", "leave", "settle"]), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@given(_STEPS)
def test_every_delivery_passes_once_in_order_and_everybody_hears_what_became_of_it(steps: list[tuple[str, int, int]]) -> None:
    async def story() -> None:
        schedule = Slow()
        gathered = DeliveryBatcher(schedule.deliver_batches)
        asked: list[tuple[list[int], asyncio.Task[list[DeliveryStatus]]]] = []
        broken: set[int] = set()
        left: set[int] = set()
        numbers = iter(range(10_000))

        def under_way() -> list[int]:
            return [number for number, end in enumerate(schedule.ends) if not end.done()]

        for what, worker, count in steps:
            if what == "deliver":
                ids = [next(numbers) for _ in range(count)]
                asked.append((ids, asyncio.create_task(gathered.deliver("s", f"w{worker}", arrivals(*ids)))))
            elif what == "leave" and asked:  # whoever delivered waits no more
                left.add(len(asked) - 1)
                await settled()
                asked[-1][1].cancel()
            elif what in ("end", "break"):
                await settled()
                for number in under_way():
                    if what == "break":
                        broken.add(number)
                        schedule.ends[number].set_exception(RunError(f"call {number} broke"))
                    else:
                        schedule.ends[number].set_result(None)
            else:
                await settled()
            assert len(under_way()) <= 1
        await settled()
        while under_way():
            schedule.ends[-1].set_result(None)
            await settled()

        sent = [(number, leases(delivery_batch)) for number, call in enumerate(schedule.calls) for delivery_batch in call]
        assert [ids for _, ids in sent] == [ids for ids, _ in asked]  # each once, in the order in which they came
        for place, ((number, ids), (_, task)) in enumerate(zip(sent, asked, strict=True)):
            if place in left and task.cancelled():
                continue
            error = task.exception()
            if number in broken:
                assert isinstance(error, RunError)
                assert str(error) == f"call {number} broke"
            elif 13 in ids:
                assert isinstance(error, ValueError)
            else:
                assert task.result() == [DeliveryStatus.FILTERED if n % 2 else DeliveryStatus.KEPT for n in ids]

    run(story)


def test_nobody_waits_for_a_call_that_was_cancelled() -> None:
    async def story() -> None:
        schedule = Slow()
        gathered = DeliveryBatcher(schedule.deliver_batches)
        asked = [asyncio.create_task(gathered.deliver("s", "a", arrivals(0)))]
        await settled()
        asked.append(asyncio.create_task(gathered.deliver("s", "b", arrivals(2))))
        await settled()
        schedule.ends[0].cancel()  # as whatever carries the call does when it is torn down
        await settled()
        assert [task.cancelled() for task in asked] == [True, True]
        again = asyncio.create_task(gathered.deliver("s", "a", arrivals(4)))
        await settled()
        assert [leases(delivery_batch) for delivery_batch in schedule.calls[1]] == [[4]]
        schedule.ends[1].set_result(None)
        assert await again == [DeliveryStatus.KEPT]

    run(story)


def test_a_schedule_that_answers_too_few_is_told_to_everybody_who_waits() -> None:
    async def forgetful(delivery_batches: Sequence[DeliveryBatch]) -> list[DeliveryResult]:
        return []

    async def story() -> None:
        with pytest.raises(RunError, match="1 deliveries with 0 results"):
            await DeliveryBatcher(forgetful).deliver("s", "a", arrivals(0))

    run(story)
