"""The crew in one process, driven call by call: evaluations that several requests ask for, interrupts, turns, a producer that ends.

Above staleness 0 a run has processes; here its workers are kept in this one, where a test can reach into them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.contracts.errors import RunError
from rlcore.contracts.snapshots import Probe, Snapshot
from rlcore.entry import make_plan
from rlcore.roles.consumer import Consumer
from rlcore.runtime.driver_crew import DriverCrew
from rlcore.runtime.in_process import InProcessWorker, ServiceWorker
from rlcore.runtime.interrupt import Interrupt
from rlcore.runtime.producer_host import ProducerHost
from rlcore.runtime.trainer_host import TrainerHost
from rlcore.testing import FakeInference, FakePolicy, RunTester
from rlcore.testing.weights import publish

NEVER = {"filter_range": [0.98, 0.99], "dynamic_batching": True, "filter_limit": 100_000}
"""A group filter that lets nothing pass, and does not say for long that this is too much."""


def snapshot(version: int, tokens: int) -> Snapshot:
    policy = FakePolicy.random(tokens, seed=version)
    ids = np.array([5, 6, 7], np.int32)
    return Snapshot.of(
        version, dict(policy.tensors()), Probe(token_ids=ids, logprobs=policy.logprobs(ids).astype(np.float32), tolerance=1e-4)
    )


class Together(DriverCrew):
    """In one process, whatever the staleness."""

    reach = "process"
    in_turns = True


def trainer(crew: DriverCrew) -> TrainerHost:
    (rank,) = crew._ranks.workers
    assert isinstance(rank, InProcessWorker)
    assert isinstance(rank.host, TrainerHost)
    return rank.host


def producer(crew: DriverCrew) -> ProducerHost:
    (worker,) = crew._team.workers
    assert isinstance(worker, InProcessWorker)
    assert isinstance(worker.host, ProducerHost)
    return worker.host


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
def crew_of(folder: Path, *, staleness: int, **sections: Mapping[str, Any]) -> Iterator[tuple[DriverCrew, Interrupt]]:
    """One that has begun, of a run with 12 prompts in batches of 3, and a held-out task."""
    tester = RunTester(folder).with_fakes()
    held_out = {"eval_dataset": {"letters": str(tester.fake_data("held.jsonl", "abc"))}}
    run = {"num_episodes": 2, "max_steps": 4, **sections.pop("run", {})}
    config = tester.fake_run(run=run, eval=held_out, training={"train_batch_size": 3}, schedule={"max_staleness": staleness}, **sections)
    with chdir(folder), tester.plugins, ExitStack() as closing:
        crew, interrupt = Together(make_plan(config, runtime=Together), closing), Interrupt(lambda line: None)
        crew.begin(folder, interrupt)
        yield crew, interrupt


def steps(crew: DriverCrew) -> list[int]:
    return [step for step, _ in crew.take_evaluations(wait=True)]


def hand_out(crew: DriverCrew, version: int) -> None:
    """As if the trainer had made this version; it is served on return."""
    publisher = trainer(crew)._publisher
    assert publisher is not None
    publish(publisher, snapshot(version, len(crew.tokenizer)))
    until(lambda: producer(crew)._loop.producer.version == version)


def test_a_version_is_evaluated_once_however_many_requests_it_answers(tmp_path: Path) -> None:
    """The requests of steps 9 and 12 both find version 12, as they do where training is ahead of the producer."""
    with crew_of(tmp_path, staleness=1) as (crew, _):
        hand_out(crew, 12)
        crew.evaluate(9)
        crew.evaluate(12)
        assert steps(crew) == [12]
        crew.evaluate(12)
        assert steps(crew) == []


def test_a_newer_version_is_evaluated_again(tmp_path: Path) -> None:
    with crew_of(tmp_path, staleness=1) as (crew, _):
        for version in (12, 13):
            hand_out(crew, version)
            crew.evaluate(version)
            assert steps(crew) == [version]


def test_an_evaluation_in_turns_is_there_as_soon_as_it_was_asked_for(tmp_path: Path) -> None:
    with crew_of(tmp_path, staleness=0) as (crew, _):
        crew.evaluate(0)
        ((step, (report,)),) = crew.take_evaluations()
        assert (step, len(report.rows)) == (0, 3)


def test_who_interrupts_a_run_gets_the_step_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = FakeInference.submit
    with crew_of(tmp_path, staleness=0, inference={"inference_batch_size": 3}) as (crew, interrupt):

        def submitted(self: FakeInference, requests: Any) -> None:
            interrupted(interrupt)
            submit(self, requests)

        monkeypatch.setattr(FakeInference, "submit", submitted)
        assert crew.next_batch()
        assert crew.train(log_rollouts=False).version == 1


def test_an_interrupt_ends_the_wait_where_the_filter_lets_nothing_pass(tmp_path: Path) -> None:
    with crew_of(tmp_path, staleness=0, run={"num_episodes": 10_000}, algorithm=NEVER) as (crew, interrupt):
        interrupted(interrupt)
        assert not crew.next_batch()
        assert not crew.status().finished


def test_in_turns_nothing_is_leased_before_the_next_batch_is_asked_for(tmp_path: Path) -> None:
    with crew_of(tmp_path, staleness=0) as (crew, _):
        assert crew.next_batch()
        assert crew.train(log_rollouts=False).version == 1
        until(lambda: producer(crew)._loop.producer.version == 1)
        crew.evaluate(1)
        assert (crew.status().in_flight, crew.status().buffered, crew.state()["coordinator"]["cursor"]) == (0, 0, [0, 3])


def test_the_failures_that_a_state_has_counted_can_be_taken_with_it(tmp_path: Path) -> None:
    """Else a run that goes on from there would never tell of them."""
    failed = {"step": 1, "episode": 0, "prompt_id": "p", "reason": "timeout"}
    with crew_of(tmp_path, staleness=0) as (crew, _):
        service = crew._schedule
        assert isinstance(service, ServiceWorker)
        service._service._failures.append(failed)
        crew.state()
        assert crew.take_failures() == [failed]


def test_a_producer_that_failed_while_nobody_waited_is_named_to_the_next_who_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: FakeInference, timeout: float) -> Any:
        raise OSError("gone")

    with crew_of(tmp_path, staleness=1) as (crew, _):
        monkeypatch.setattr(FakeInference, "poll", broken)
        crew.evaluate(0)
        producer(crew)._over.result()
        with pytest.raises(RunError, match=r"FakeInference of producer producer-0 .*generating.*gone"):
            crew.take_evaluations(wait=True)


def test_a_batch_that_is_awaited_after_the_end_is_refused(tmp_path: Path) -> None:
    with crew_of(tmp_path, staleness=0) as (crew, _):
        crew.stop()
        with pytest.raises(RunError, match="the producer was stopped while a batch was awaited"):
            crew.next_batch()


@pytest.mark.parametrize("staleness", [0, 1])
def test_its_threads_end_with_it_even_where_it_is_closed_in_the_middle(tmp_path: Path, staleness: int) -> None:
    before = set(threading.enumerate())
    with crew_of(tmp_path, staleness=staleness) as (crew, _):
        assert crew.next_batch()
        names = {thread.name for thread in set(threading.enumerate()) - before}
        assert {"services", "producer-0 run"} <= names
    until(lambda: not {thread.name for thread in set(threading.enumerate()) - before} & {"services", "producer-0 run"})


def test_an_engine_whose_producer_has_ended_is_not_missed(tmp_path: Path) -> None:
    with crew_of(tmp_path, staleness=0) as (crew, _):
        crew.stop()
        producer(crew)._over.result()
        assert crew._guard.pulse.age == 0.0


def test_above_staleness_zero_it_generates_while_the_trainer_has_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update = Consumer.update
    with crew_of(tmp_path, staleness=1, inference={"inference_batch_size": 1}) as (crew, _):

        def updated(self: Consumer, *batch: Any) -> Any:
            until(lambda: crew.status().buffered >= 3)  # a whole batch, one prompt at a time: most of it is leased from now on
            return update(self, *batch)

        monkeypatch.setattr(Consumer, "update", updated)
        assert crew.next_batch()
        crew.train(log_rollouts=False)
