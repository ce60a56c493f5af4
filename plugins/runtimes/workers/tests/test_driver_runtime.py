"""The crew over workers, driven call by call: evaluations that several requests ask for, a producer that ends. Its workers are in this
process, where a test can reach into them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_workers import worker_runtime
from rlcore_plugin_workers.driver_loop import ServiceWorker
from rlcore_plugin_workers.driver_runtime import DriverDeployment, DriverRuntime
from rlcore_plugin_workers.producer_pool import ProducerPool
from rlcore_plugin_workers.producer_worker import ProducerWorker
from rlcore_plugin_workers.schedule_service import ScheduleService
from rlcore_plugin_workers.trainer_worker import TrainerWorker

from rlcore.api import RunError, Snapshot
from rlcore.api.runtime import Interrupt
from rlcore.api.weights import Probe
from rlcore.testing import FakeInference, FakePolicy, FakeTraining, RunTester, make_plan
from rlcore.testing.weights import publish
from tests.in_process_launcher import InProcessLauncher, InProcessWorker


def snapshot(version: int, tokens: int) -> Snapshot:
    policy = FakePolicy.random(tokens, seed=version)
    ids = np.array([5, 6, 7], np.int32)
    return Snapshot.of(
        version, dict(policy.tensors()), Probe(token_ids=ids, logprobs=policy.logprobs(ids).astype(np.float32), tolerance=1e-4)
    )


class Here(DriverDeployment):
    make_launcher = InProcessLauncher


class Together(DriverRuntime):
    """In one process, whatever the staleness."""

    reach = "process"
    alternating = True
    make_deployment = Here


def trainer(crew: DriverRuntime) -> TrainerWorker:
    (rank,) = crew._ranks.workers
    assert isinstance(rank, InProcessWorker)
    assert isinstance(rank.host, TrainerWorker)
    return rank.host


def producer(crew: DriverRuntime) -> ProducerWorker:
    (worker,) = crew._pool.workers
    assert isinstance(worker, InProcessWorker)
    assert isinstance(worker.host, ProducerWorker)
    return worker.host


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@contextmanager
def crew_of(folder: Path, *, staleness: int, **sections: Mapping[str, Any]) -> Iterator[tuple[DriverRuntime, Interrupt]]:
    """One that has begun, of a run with 12 prompts in batches of 3, and a held-out task."""
    tester = RunTester(folder).with_fakes()
    held_out = {"eval_dataset": {"letters": str(tester.fake_data("held.jsonl", "abc"))}}
    run = {"num_episodes": 2, "max_steps": 4, **sections.pop("run", {})}
    config = tester.fake_run(run=run, eval=held_out, training={"train_batch_size": 3}, schedule={"max_staleness": staleness}, **sections)
    with chdir(folder), tester.plugins, ExitStack() as closing:
        crew, interrupt = Together(make_plan(config, runtime=Together), closing), Interrupt()
        crew.begin(folder, interrupt)
        yield crew, interrupt


def steps(crew: DriverRuntime) -> list[int]:
    return [step for step, _ in crew.take_evaluations(wait=True)]


def hand_out(crew: DriverRuntime, version: int) -> None:
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


def test_the_request_of_an_evaluation_waits_until_its_version_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run trains on when it returns, and the next version would replace this one."""
    awaited: list[int] = []

    async def served(self: ScheduleService, version: int) -> None:
        awaited.append(version)

    monkeypatch.setattr(ScheduleService, "served", served)
    with crew_of(tmp_path, staleness=1) as (crew, _):
        hand_out(crew, 12)
        crew.evaluate(12)
        assert awaited == [12]


def test_a_newer_version_is_evaluated_again(tmp_path: Path) -> None:
    with crew_of(tmp_path, staleness=1) as (crew, _):
        for version in (12, 13):
            hand_out(crew, version)
            crew.evaluate(version)
            assert steps(crew) == [version]


def test_a_producer_that_failed_while_nobody_waited_is_named_to_the_next_who_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: FakeInference, timeout: float) -> Any:
        raise OSError("gone")

    with crew_of(tmp_path, staleness=1) as (crew, _):
        monkeypatch.setattr(FakeInference, "poll", broken)
        host = producer(crew)
        crew.evaluate(0)
        host._over.result()
        with pytest.raises(RunError, match=r"FakeInference of producer producer-0\S* failed while generating.*gone"):
            crew.take_evaluations(wait=True)


def test_its_threads_end_with_it_even_where_it_is_closed_in_the_middle(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with crew_of(tmp_path, staleness=1) as (crew, _):
        assert crew.next_batch()
        names = {thread.name for thread in set(threading.enumerate()) - before}
        assert {"driver", "producer-0 run"} <= names
    until(lambda: not {thread.name for thread in set(threading.enumerate()) - before} & {"driver", "producer-0 run"})


def test_above_staleness_zero_it_generates_while_the_trainer_has_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update = FakeTraining.update
    with crew_of(tmp_path, staleness=1, inference={"inference_batch_size": 1}) as (crew, _):

        def updated(self: FakeTraining, *batch: Any) -> Any:
            until(
                lambda: crew._schedule.call("status").result().buffered >= 3
            )  # a whole batch, one prompt at a time: most of it is leased from now on
            return update(self, *batch)

        monkeypatch.setattr(FakeTraining, "update", updated)
        assert crew.next_batch()
        crew.train(log_rollouts=False)


def test_the_failures_that_a_state_has_counted_can_be_taken_with_it(tmp_path: Path) -> None:
    """Else a run that goes on from there would never tell of them."""
    failed = {"step": 1, "episode": 0, "prompt_id": "p", "reason": "timeout"}
    with crew_of(tmp_path, staleness=1) as (crew, _):
        service = crew._schedule
        assert isinstance(service, ServiceWorker)
        service._service._failures.append(failed)
        crew.state()
        assert crew.take_failures() == [failed]


def test_failures_are_taken_although_an_error_waits_to_be_raised(tmp_path: Path) -> None:
    failed = {"step": 1, "episode": 0, "prompt_id": "p", "reason": "timeout"}

    async def fails() -> None:
        raise RunError("a rank died")

    with crew_of(tmp_path, staleness=1) as (crew, _):
        crew._stats.failures.append(failed)
        watched: list[Any] = []
        crew._driver.soon(lambda: watched.append(crew._driver.watch(fails())))
        until(lambda: bool(watched) and watched[0].done())
        assert crew.take_failures() == [failed]
        with pytest.raises(RunError, match="a rank died"):
            crew.status()


def test_failures_that_are_not_taken_in_time_are_taken_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that hangs in a call of a library must not lose them."""
    failed = {"step": 1, "episode": 0, "prompt_id": "p", "reason": "timeout"}
    with crew_of(tmp_path, staleness=1) as (crew, _):
        crew._stats.failures.append(failed)
        with monkeypatch.context() as patch:
            patch.setattr(worker_runtime, "_LAST_SECONDS", 0.05)
            crew._driver.soon(lambda: time.sleep(0.5))
            assert crew.take_failures() == []
        assert crew.take_failures() == [failed]


def test_producers_are_stopped_in_the_loop_that_replaces_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that is being replaced when the crew closes would outlive the run."""
    threads, stop = [], ProducerPool.stop
    monkeypatch.setattr(ProducerPool, "stop", lambda pool: (threads.append(threading.current_thread().name), stop(pool))[1])
    with crew_of(tmp_path, staleness=1):
        pass
    assert threads == ["driver"]
