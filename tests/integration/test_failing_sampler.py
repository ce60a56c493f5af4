"""A sampler that fails beside the schedule service."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from rlcore_plugin_workers.schedule_service import ScheduleService

from rlcore.api import RunError, Sampler
from rlcore.api.runtime import FilterMonitor, GroupSummary
from rlcore.api.schedule import Coordinator, Delivery, ScheduleSettings
from rlcore.schedule import ChosenSampler


class Fails(Sampler):
    """Draws prompts 0 and 1."""

    def __init__(self) -> None:
        self.drawn = iter(range(2))

    def next(self) -> int:
        return next(self.drawn)


async def parked(call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.create_task(call)
    for _ in range(3):
        await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("asked_before", [True, False])
def test_a_sampler_that_fails_ends_the_run_and_not_the_caller_whose_event_made_room(asked_before: bool) -> None:
    async def story() -> None:
        sampler = ChosenSampler(Fails(), "fails", "sampler 'fails' of acme", 8)
        coordinator = Coordinator(ScheduleSettings(prompts=8, train_batch_size=2, buffer_limit=4, max_staleness=1), [sampler])
        schedule = ScheduleService(coordinator, FilterMonitor(bounds=None, by="accuracy", batch_size=2, limit=None))
        await schedule.join("a")
        batch = await parked(schedule.next_batch())
        leases = await schedule.lease("a", 2, 0)
        if not asked_before:
            arrivals = [GroupSummary(delivery=Delivery(lease_id=lease.lease_id, version=0), prompt_id="p", tokens=1) for lease in leases]
            await schedule.deliver("store", "a", arrivals)
            await batch
            await schedule.training()
        await parked(schedule.lease("a", 2, 0))
        if not asked_before:
            batch = await parked(schedule.next_batch(trained=1))
        with pytest.raises(RunError, match="sampler 'fails' of acme failed while drawing: StopIteration"):
            await batch

    asyncio.run(asyncio.wait_for(story(), 20))
