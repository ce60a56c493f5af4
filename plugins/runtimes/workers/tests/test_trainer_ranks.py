"""Trainer ranks as one: what ends one of them ends the run, also while nobody waits for its answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore_plugin_workers import driver_loop
from rlcore_plugin_workers.heartbeat import Deadlines
from rlcore_plugin_workers.trainer_ranks import TrainerRanks
from rlcore_plugin_workers.trainer_worker import RankShare

from rlcore.api import ConfigError, RunError, WeightsError
from rlcore.api.runtime import WorkerLostError
from tests.driver_stage import DriverStage, driver_stage
from tests.worker_answers import ToldWorker


@pytest.fixture
def stage() -> Iterator[DriverStage]:
    with driver_stage() as made:
        yield made


def ranks(stage: DriverStage, count: int, **seconds: float) -> TrainerRanks:
    launcher = SimpleNamespace(start=lambda host, *given, name, placement: ToldWorker(name))
    deployment: Any = SimpleNamespace(launcher=launcher, address="127.0.0.1", device="cpu", trainer_placement=lambda rank: None)
    deadlines = Deadlines(**{"restarts": 0, "engine_seconds": 60.0, "load_seconds": 60.0, "weights_seconds": 60.0, **seconds})  # type: ignore[arg-type]
    made = stage.make(TrainerRanks, deployment, stage.driver, None, count, deadlines)
    stage.drain()
    return made


def test_a_transfer_that_failed_in_the_background_ends_the_run(stage: DriverStage) -> None:
    rank: Any = ranks(stage, 1).workers[0]
    rank.calls["lifetime"][0].fail(WeightsError("the trainer waited 4 s for producer p1"))
    with pytest.raises(WeightsError, match="waited 4 s for producer p1"):
        stage.drain()


def test_an_error_keeps_the_trace_of_its_process(stage: DriverStage) -> None:
    rank: Any = ranks(stage, 1).workers[0]
    error = WeightsError("the trainer waited 4 s for producer p1")
    error.__cause__ = RunError("raised in trainer rank 0:")
    rank.calls["lifetime"][0].fail(error)
    with pytest.raises(WeightsError) as caught:
        stage.drain()
    assert caught.value.__cause__ is error.__cause__


def test_a_death_is_told_while_all_wait_for_groups(stage: DriverStage) -> None:
    rank: Any = ranks(stage, 2).workers[1]
    rank.calls["lifetime"][0].fail(rank.death)
    with pytest.raises(WorkerLostError, match=r"^trainer rank 1 of 2 died \("):
        stage.drain()


def test_a_rank_that_is_stopped_is_noticed_while_all_wait_for_groups(stage: DriverStage) -> None:
    pool = ranks(stage, 2, silence_seconds=0.1)
    answering: Any = pool.workers[0]
    answering._ready["lives"] = lambda: 1
    stage.make(pool.watch)
    with pytest.raises(WorkerLostError, match=r"^trainer rank 1 of 2 was lost \(its process has not answered for 0.1 s\)$"):
        stage.until(lambda: False)


def test_ranks_that_do_not_come_back_from_an_update_are_named(stage: DriverStage) -> None:
    pool = ranks(stage, 2, trainer_seconds=0.05)
    first: Any = pool.workers[0]
    first._ready["train"] = lambda: None
    with pytest.raises(WorkerLostError, match=r"^trainer rank 1 did not return within 0.05 s; .* raise --trainer-deadline$"):
        stage.run(pool.train(None, False, [[], []]))  # type: ignore[arg-type]


def test_ranks_that_share_a_batch_out_differently_end_the_run(stage: DriverStage) -> None:
    pool, answers = ranks(stage, 3), [RankShare(leases=(number,), digest="one") for number in range(3)]
    for worker, answer in zip(pool.workers, answers, strict=True):
        worker._ready["share_out"] = lambda answer=answer: answer  # type: ignore[attr-defined]
    assert stage.run(pool.plan(None, [[], [], []])) == [(0,), (1,), (2,)]  # type: ignore[arg-type]
    last: Any = pool.workers[2]
    last._ready["share_out"] = lambda: RankShare(leases=(2,), digest="another")
    with pytest.raises(RunError, match=r"ranks 0 and 2 divide the same batch differently.* `cost`"):
        stage.run(pool.plan(None, [[], [], []]))  # type: ignore[arg-type]


def test_a_rank_that_is_stopped_while_it_loads_is_named(stage: DriverStage) -> None:
    pool = ranks(stage, 1, load_seconds=0.05)
    stage.run(pool.prepare(3, None))
    with pytest.raises(WorkerLostError, match=r"^trainer rank 0 did not load within 0.05 s; check whether its process is stopped"):
        stage.until(lambda: False)


def test_an_error_of_others_is_blamed_on_the_rank_that_is_silent(stage: DriverStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_loop, "_CAUSE_SECONDS", 0.1)
    stage.driver.suspects = ranks(stage, 1).workers
    error = stage.run(stage.driver.cause(WeightsError("version 4 does not arrive")))
    assert isinstance(error, WorkerLostError)
    assert str(error) == "trainer rank 0 was lost (its process has not answered for 0.1 s): version 4 does not arrive"


def test_an_error_of_a_rank_that_answers_is_no_silence(stage: DriverStage) -> None:
    pool = ranks(stage, 1)
    worker: Any = pool.workers[0]
    stage.make(pool.watch)
    stage.until(lambda: "lives" in worker.calls)
    worker.calls["lives"][0].fail(ConfigError("its node has no folder /run"))
    with pytest.raises(ConfigError, match="no folder"):
        stage.until(lambda: False)


def test_batches_are_sent_from_another_thread_than_the_schedule_s(stage: DriverStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """To pickle one takes long."""
    pool, threads = ranks(stage, 1), []
    call = ToldWorker.call
    monkeypatch.setattr(
        ToldWorker, "call", lambda *given, **named: (threads.append(threading.current_thread().name), call(*given, **named))[1]
    )
    pool.workers[0]._ready |= {"train": lambda: None, "preload": lambda: (), "share_out": lambda: None}  # type: ignore[attr-defined]
    stage.run(pool.train(None, False, [[]]))  # type: ignore[arg-type]
    stage.run(pool.preload([[]]))
    stage.run(pool.plan_ahead(None, [[]]))  # type: ignore[arg-type]
    assert len(threads) == 3
    assert "driver" not in threads
