"""The runtime of one process, driven call by call: interrupts, turns, threads that end, weights that do not come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlcore.contracts.errors import GroupBrokenError, RunError, WeightsError
from rlcore.contracts.runtime_interface import Interrupt
from rlcore.entry import make_plan
from rlcore.roles.producer import Producer
from rlcore.runtime.one_process import OneProcess
from rlcore.testing import FakeInference, RunTester

NEVER = {"filter_range": [0.98, 0.99], "dynamic_batching": True, "filter_limit": 100_000}
"""A group filter that lets nothing pass, and does not say for long that this is too much."""


def interrupted(interrupt: Interrupt) -> None:
    """As Ctrl-C does it."""
    interrupt.requested = True
    for wake in interrupt.wakes:
        wake()


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@contextmanager
def crew_of(folder: Path, *, begun: bool = True, **sections: Mapping[str, Any]) -> Iterator[tuple[OneProcess, Interrupt]]:
    """One that has begun, of a run with 12 prompts in batches of 3, and a held-out task."""
    tester = RunTester(folder).with_fakes()
    held_out = {"eval_dataset": {"letters": str(tester.fake_data("held.jsonl", "abc"))}}
    run = {"num_episodes": 2, "max_steps": 4, **sections.pop("run", {})}
    schedule = {"max_staleness": 0, **sections.pop("schedule", {})}
    config = tester.fake_run(run=run, eval=held_out, training={"train_batch_size": 3}, schedule=schedule, **sections)
    with chdir(folder), tester.plugins, ExitStack() as closing:
        runtime, interrupt = OneProcess(make_plan(config, runtime="in_process"), closing), Interrupt()
        if begun:
            runtime.begin(folder, interrupt)
        yield runtime, interrupt


def test_an_evaluation_is_there_as_soon_as_it_was_asked_for(tmp_path: Path) -> None:
    with crew_of(tmp_path) as (runtime, _):
        runtime.evaluate(0)
        ((step, (report,)),) = runtime.take_evaluations()
        assert (step, len(report.rows)) == (0, 3)


def test_who_interrupts_a_run_gets_the_step_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = FakeInference.submit
    with crew_of(tmp_path, inference={"inference_batch_size": 3}) as (runtime, interrupt):

        def submitted(self: FakeInference, requests: Any) -> None:
            interrupted(interrupt)
            submit(self, requests)

        monkeypatch.setattr(FakeInference, "submit", submitted)
        assert runtime.next_batch()
        assert runtime.train(log_rollouts=False).version == 1


def test_an_interrupt_ends_the_wait_where_the_filter_lets_nothing_pass(tmp_path: Path) -> None:
    with crew_of(tmp_path, run={"num_episodes": 10_000}, algorithm=NEVER) as (runtime, interrupt):
        interrupted(interrupt)
        assert not runtime.next_batch()
        assert not runtime.status().finished


def test_nothing_is_leased_before_the_next_batch_is_asked_for(tmp_path: Path) -> None:
    with crew_of(tmp_path) as (runtime, _):
        assert runtime.next_batch()
        assert runtime.train(log_rollouts=False).version == 1
        assert runtime._producer.version == 1
        runtime.evaluate(1)
        assert (runtime.status().in_flight, runtime.status().buffered, runtime.state()["coordinator"]["cursor"]) == (0, 0, [0, 3])


def test_a_batch_that_is_awaited_after_the_end_is_refused(tmp_path: Path) -> None:
    with crew_of(tmp_path) as (runtime, _):
        runtime.stop()
        with pytest.raises(RunError, match="the producer was stopped while a batch was awaited"):
            runtime.next_batch()


def test_an_evaluation_after_the_end_is_refused(tmp_path: Path) -> None:
    with crew_of(tmp_path) as (runtime, _):
        runtime.stop()
        with pytest.raises(RunError, match="producer-0 was stopped and accepts no more work"):
            runtime.evaluate(0)


def test_an_engine_whose_producer_has_ended_is_not_missed(tmp_path: Path) -> None:
    with crew_of(tmp_path) as (runtime, _):
        runtime.stop()
        assert runtime._guard.pulse.age == 0.0


@pytest.mark.parametrize("begun", [True, False])
def test_its_threads_end_with_it_even_if_it_is_closed_in_the_middle(tmp_path: Path, begun: bool) -> None:
    before = set(threading.enumerate())
    with crew_of(tmp_path, begun=begun) as (runtime, _):
        if begun:
            assert runtime.next_batch()
            assert {"engine guard", "producer-0"} <= {thread.name for thread in set(threading.enumerate()) - before}
    until(lambda: not {thread.name for thread in set(threading.enumerate()) - before} & {"engine guard", "producer-0"})


def test_what_an_engine_raises_reaches_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: FakeInference, timeout: float) -> Any:
        raise OSError("gone")

    with crew_of(tmp_path) as (runtime, _):
        monkeypatch.setattr(FakeInference, "poll", broken)
        with pytest.raises(RunError, match=r"FakeInference of producer producer-0 .*generating.*gone"):
            runtime.next_batch()


def test_who_gives_up_a_batch_ends_the_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C twice: KeyboardInterrupt leaves ``next_batch``, and what is under way must not keep the run from closing."""
    asked, ended = threading.Event(), list[RunError]()

    def poll(self: FakeInference, timeout: float) -> list[Any]:
        asked.set()
        time.sleep(timeout)
        return []

    def wait(runtime: OneProcess) -> None:
        try:
            runtime.next_batch()
        except RunError as error:
            ended.append(error)

    with crew_of(tmp_path) as (runtime, _):
        monkeypatch.setattr(FakeInference, "poll", poll)
        waiter = threading.Thread(target=wait, args=(runtime,))
        waiter.start()
        assert asked.wait(20.0)
    waiter.join(20.0)
    assert [str(error) for error in ended] == ["producer-0 was stopped while it generated"]
    until(lambda: not any(thread.name == "producer-0" for thread in threading.enumerate()))


def test_weights_that_do_not_come_end_the_run_at_their_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with crew_of(tmp_path, weights={"deadline": 0.2}) as (runtime, _):
        assert runtime.next_batch()
        monkeypatch.setattr(type(runtime._producer._receiver), "newer_than", lambda self, version: None)
        with pytest.raises(
            WeightsError, match=r"did not deliver a complete version 1 to producer-0 within 0\.2 s; .*raise --weights-deadline"
        ):
            runtime.train(log_rollouts=False)


def test_a_transfer_that_fails_while_its_weights_are_awaited_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with crew_of(tmp_path) as (runtime, _):
        assert runtime.next_batch()
        monkeypatch.setattr(
            type(runtime._producer._receiver), "newer_than", lambda self, version: runtime._transfer_failed(WeightsError("lost"))
        )
        with pytest.raises(WeightsError, match=r"^lost$"):
            runtime.train(log_rollouts=False)


def test_a_version_whose_group_broke_is_loaded_when_it_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, broke = Producer.load, []

    def loaded(self: Producer, snapshot: Any) -> None:
        if not broke:
            raise GroupBrokenError("a member left")
        load(self, snapshot)

    with crew_of(tmp_path) as (runtime, _):
        assert runtime.next_batch()
        monkeypatch.setattr(Producer, "load", loaded)
        monkeypatch.setattr(type(runtime._producer._receiver), "on_group_broken", lambda self, epoch: broke.append(epoch))
        assert runtime.train(log_rollouts=False).version == 1
        assert (broke, runtime._producer.version) == ([-1], 1)
