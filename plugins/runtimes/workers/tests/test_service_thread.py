"""Services in a thread of their own: calls in order, answers and errors that reach who asked, an end that leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest
from rlcore_plugin_workers.node_services import GroupStore
from rlcore_plugin_workers.schedule_service import ScheduleService
from rlcore_plugin_workers.service_thread import ServiceThread, ServiceWorker

from rlcore.api import RunError
from rlcore.api.runtime import FilterWatch
from rlcore.api.schedule import Coordinator, ScheduleSettings

SECONDS = 20.0


def schedule() -> ScheduleService:
    settings = ScheduleSettings(prompts=4, train_batch_size=2, n_sampled=2, buffer_limit=8, max_staleness=1)
    return ScheduleService(Coordinator(settings), FilterWatch(bounds=None, by="accuracy", batch_size=2, limit=10))


def test_calls_begin_in_the_order_in_which_they_were_made() -> None:
    services, seen = ServiceThread(), []

    async def note(number: int) -> None:
        seen.append(number)

    calls = [services.call(note(number)) for number in range(100)]
    services.close()
    assert all(call.done() for call in calls)
    assert seen == sorted(seen)


def test_who_waits_when_it_closes_is_cancelled_and_its_thread_ends() -> None:
    services = ServiceThread()
    waits = services.call(asyncio.Event().wait())
    services.close()
    with pytest.raises(CancelledError):
        waits.result(SECONDS)
    assert "services" not in {thread.name for thread in threading.enumerate()}


def test_it_may_be_closed_before_it_was_asked_for_anything() -> None:
    for _ in range(100):
        ServiceThread().close()
    assert "services" not in {thread.name for thread in threading.enumerate()}


def test_a_producer_gets_its_leases() -> None:
    services, made = ServiceThread(), schedule()
    services.call(made.join("p")).result(SECONDS)
    services.call(made.next_batch())
    leases = ServiceWorker(services, made, "the coordinator").call("lease", "p", 2, 0).result(SECONDS)
    assert [lease.lease_id for lease in leases] == [0, 1]
    services.close()


def test_what_the_store_raises_reaches_the_producer() -> None:
    async def refuses(*delivered: Any) -> Any:
        raise RunError("not here")

    services = ServiceThread()
    with pytest.raises(RunError, match="not here"):
        ServiceWorker(services, GroupStore("s", refuses), "the store").call("deliver", "p", [], []).result(SECONDS)
    services.close()


def test_a_call_that_waits_for_long_is_not_lost() -> None:
    """An event loop holds no reference to a task that waits for what nobody else knows."""
    services, made = ServiceThread(), schedule()
    waits = ServiceWorker(services, made, "the coordinator").call("lifetime")
    ServiceWorker(services, made, "the coordinator").call("status").result(SECONDS)
    gc.collect()
    assert len(services._tasks) == 1
    assert not waits.done()
    services.close()
    assert waits.cancelled()
