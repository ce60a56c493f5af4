"""The driver's loop: services in it, values in order, the first error at once, what is watched, Ctrl-C, an end that leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest
from rlcore_plugin_workers import driver_loop
from rlcore_plugin_workers.driver_loop import DriverLoop, ServiceWorker, answered, first_error, successful_values
from rlcore_plugin_workers.node_services import GroupStore
from rlcore_plugin_workers.schedule_service import ScheduleService
from rlcore_plugin_workers.workers import WorkerDiedError

from rlcore.api import RunError
from rlcore.api.runtime import FilterMonitor, RuntimeLostError, WorkerLostError
from rlcore.api.schedule import Coordinator, ScheduleSettings
from tests.driver_stage import DriverStage, driver_stage
from tests.worker_answers import Answer

SECONDS = 20.0


def schedule() -> ScheduleService:
    settings = ScheduleSettings(prompts=4, train_batch_size=2, n_sampled=2, buffer_limit=8, max_staleness=1)
    return ScheduleService(Coordinator(settings), FilterMonitor(bounds=None, by="accuracy", batch_size=2, limit=10))


def test_calls_begin_in_the_order_in_which_they_were_made() -> None:
    driver, seen = DriverLoop(), []

    async def note(number: int) -> None:
        seen.append(number)

    calls = [driver.call(note(number)) for number in range(100)]
    driver.close()
    assert all(call.done() for call in calls)
    assert seen == sorted(seen)


def test_who_waits_when_it_closes_is_cancelled_and_its_thread_ends() -> None:
    driver = DriverLoop()
    waits = driver.call(asyncio.Event().wait())
    driver.close()
    with pytest.raises(CancelledError):
        waits.result(SECONDS)
    assert "driver" not in {thread.name for thread in threading.enumerate()}


def test_it_may_be_closed_before_it_was_asked_for_anything() -> None:
    for _ in range(100):
        DriverLoop().close()
    assert "driver" not in {thread.name for thread in threading.enumerate()}


def test_a_producer_gets_its_leases() -> None:
    driver, made = DriverLoop(), schedule()
    driver.call(made.join("p")).result(SECONDS)
    driver.call(made.next_batch())
    leases = ServiceWorker(driver, made, "the coordinator").call("lease", "p", 2, 0).result(SECONDS)
    assert [lease.lease_id for lease in leases] == [0, 1]
    driver.close()


def test_what_the_store_raises_reaches_the_producer() -> None:
    async def refuses(*delivered: Any) -> Any:
        raise RunError("not here")

    driver = DriverLoop()
    with pytest.raises(RunError, match="not here"):
        ServiceWorker(driver, GroupStore("s", refuses), "the store").call("deliver", "p", [], []).result(SECONDS)
    driver.close()


def test_a_call_that_waits_for_long_is_not_lost() -> None:
    """An event loop holds no reference to a task that waits for what nobody else knows."""
    driver, made = DriverLoop(), schedule()
    waits = ServiceWorker(driver, made, "the coordinator").call("lifetime")
    ServiceWorker(driver, made, "the coordinator").call("status").result(SECONDS)
    gc.collect()
    assert len(driver._tasks) == 1
    assert not waits.done()
    driver.close()
    assert waits.cancelled()


@pytest.fixture
def stage() -> Iterator[DriverStage]:
    with driver_stage() as made:
        yield made


def test_values_come_in_the_order_of_the_calls(stage: DriverStage) -> None:
    calls = [Answer(), Answer()]
    calls[1].give("b")
    calls[0].give("a")
    assert stage.run(stage.driver.values(calls)) == ["a", "b"]


def test_the_first_error_ends_the_wait_for_all_and_says_which(stage: DriverStage) -> None:
    async def worded(number: int, error: BaseException) -> BaseException:
        return RunError(f"rank {number}: {error}")

    calls = [Answer(), Answer()]
    calls[1].fail(RunError("broken"))
    with pytest.raises(RunError, match="rank 1: broken"):
        stage.run(stage.driver.values(calls, worded))


def test_a_wait_with_a_limit_ends_and_says_who_is_late(stage: DriverStage) -> None:
    calls = [Answer(), Answer()]
    calls[0].give()
    with pytest.raises(TimeoutError) as caught:
        stage.run(stage.driver.values(calls, seconds=0.01))
    assert caught.value.args == (1,)


def test_survivors_are_those_that_did_not_die(stage: DriverStage) -> None:
    calls = [Answer(), Answer(), Answer()]
    calls[0].give("a")
    calls[1].fail(WorkerDiedError("b", "the process of b died"))
    calls[2].give("c")
    assert stage.run(successful_values(calls)) == ["a", "c"]
    calls[2] = Answer()
    calls[2].fail(RunError("not a death"))
    with pytest.raises(RunError, match="not a death"):
        stage.run(successful_values(calls))


def test_a_call_that_nobody_awaits_any_more_goes_on(stage: DriverStage) -> None:
    call = Answer()

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answered(call), 0.01)

    stage.run(impatient())
    assert not call.cancelled()
    call.give("later")


def test_the_error_of_what_is_watched_ends_what_is_waited_for(stage: DriverStage) -> None:
    async def fails() -> None:
        raise RunError("a rank died")

    async def waits() -> None:
        stage.driver.watch(fails())
        await asyncio.Event().wait()

    with pytest.raises(RunError, match="a rank died"):
        stage.run(waits())
    assert stage.run(stage.driver.values([])) == []  # it was raised once


def test_lines_are_said_by_the_thread_that_waits(stage: DriverStage) -> None:
    threads = []
    stage.driver._print = lambda line: threads.append((line, threading.current_thread()))

    async def talks() -> None:
        stage.driver.say("first")
        stage.driver.say("second")

    stage.run(talks())
    assert threads == [("first", threading.current_thread()), ("second", threading.current_thread())]


def test_an_interrupt_ends_the_wait_and_cancels_what_was_waited_for(stage: DriverStage) -> None:
    ended = threading.Event()

    def interrupted(line: str) -> None:
        raise KeyboardInterrupt

    async def waits() -> None:
        stage.driver.say("line")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    stage.driver._print = interrupted
    with pytest.raises(KeyboardInterrupt):
        stage.run(waits())
    assert ended.wait(SECONDS)
    stage.driver._print = lambda line: None
    assert stage.run(stage.driver.values([])) == []  # the news of that call disturbs no other


def test_it_runs_in_a_thread_whose_own_loop_runs(stage: DriverStage) -> None:
    """That of a notebook."""

    async def cell() -> list[Any]:
        return stage.run(stage.driver.values([]))

    assert asyncio.run(cell()) == []


@pytest.mark.parametrize("death", [WorkerLostError("rank 1 died"), RuntimeLostError("the head does not answer")])
def test_the_cause_of_an_error_is_the_loss_that_is_told_soon_after(stage: DriverStage, death: RunError) -> None:
    async def told() -> None:
        await asyncio.sleep(0.01)
        raise death

    async def sought() -> BaseException:
        stage.driver.watch(told())
        return await stage.driver.cause(RunError("connection reset"))

    assert stage.run(sought()) is death


def test_other_errors_that_come_while_a_cause_is_sought_are_consequences(stage: DriverStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of what is watched, and of what is waited for."""
    monkeypatch.setattr(driver_loop, "_CAUSE_SECONDS", 0.1)
    first = RunError("connection reset")

    async def fails(words: str) -> None:
        raise RunError(words)

    async def seeks() -> None:
        raise await stage.driver.cause(first)

    async def waits() -> None:
        stage.driver.watch(seeks())
        await asyncio.sleep(0)
        stage.driver.watch(fails("watched"))
        await fails("waited for")

    with pytest.raises(RunError, match="connection reset"):
        stage.run(waits())


def test_the_first_error_of_several_works_is_returned_and_the_others_end(stage: DriverStage) -> None:
    ended = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    async def comes_to_a_good_end() -> None: ...

    async def fails() -> None:
        await asyncio.sleep(0.01)
        raise RunError("the engine died")

    assert str(stage.run(first_error(waits(), comes_to_a_good_end(), fails()))) == "the engine died"
    stage.drain()
    assert ended == ["waits"]


def test_while_a_cause_is_sought_work_that_comes_to_a_good_end_waits_for_it(stage: DriverStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run whose last transfer failed would end well. The error is raised once: the next call is not hit by it."""
    monkeypatch.setattr(driver_loop, "_CAUSE_SECONDS", 0.1)

    async def seeks() -> None:
        raise await stage.driver.cause(RunError("a transfer failed"))

    async def ends_well() -> None:
        stage.driver.watch(seeks())
        await asyncio.sleep(0)

    with pytest.raises(RunError, match="a transfer failed"):
        stage.run(ends_well())
    stage.drain()


def test_an_interrupt_waits_until_what_it_ends_starts_nothing_any_more(stage: DriverStage) -> None:
    """What it starts must be known before the caller ends everything."""
    started = []

    def interrupted(line: str) -> None:
        raise KeyboardInterrupt

    async def starts_workers() -> None:
        stage.driver.say("line")
        while True:
            time.sleep(0.05)
            started.append("worker")
            await asyncio.sleep(0)

    stage.driver._print = interrupted
    with pytest.raises(KeyboardInterrupt):
        stage.run(starts_workers())
    before = len(started)
    time.sleep(0.2)
    assert len(started) == before


def test_a_stop_iteration_of_a_worker_is_an_answer(stage: DriverStage) -> None:
    call = Answer()
    call.fail(StopIteration("exhausted"))
    with pytest.raises(RunError, match="StopIteration: exhausted"):
        stage.run(stage.driver.values([call], seconds=SECONDS))


def test_a_loop_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(work: Any) -> None:
        work.close()
        raise RuntimeError("no loop here")

    monkeypatch.setattr(asyncio, "run", refused)
    with pytest.raises(RuntimeError, match="no loop here"):
        DriverLoop()


@pytest.mark.timeout(30)
def test_a_signal_that_does_not_wake_the_main_thread_is_heard_while_it_waits(stage: DriverStage) -> None:
    """As one that arrives just before the wait. Here another thread takes it."""
    call = Answer()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: call.give("heard"))
    try:
        threading.Timer(0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)).start()
        assert stage.run(stage.driver.values([call])) == ["heard"]
    finally:
        signal.signal(signal.SIGUSR1, before)
