"""The driver judges who is silent; what the driver itself missed is not held against anybody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from rlcore_plugin_workers.driver_loop import first_error
from rlcore_plugin_workers.heartbeat import watch_heartbeat

from tests.driver_stage import DriverStage, driver_stage
from tests.worker_answers import ToldWorker


@pytest.fixture
def stage() -> Iterator[DriverStage]:
    with driver_stage() as made:
        yield made


def watched(stage: DriverStage, worker: ToldWorker, seconds: float = 0.1) -> tuple[asyncio.Task[Any], list[str]]:
    silences: list[str] = []

    async def watch() -> None:
        silences.append(str(await first_error(watch_heartbeat(worker, seconds))))

    return stage.make(lambda: stage.driver.watch(watch())), silences


def test_a_worker_that_does_not_answer_is_told_once(stage: DriverStage) -> None:
    _, silences = watched(stage, ToldWorker())
    stage.until(lambda: bool(silences))
    assert silences == ["its process has not answered for 0.1 s"]


def test_a_worker_that_answers_is_asked_again_and_again(stage: DriverStage) -> None:
    worker = ToldWorker(lives=lambda: 1)
    _, silences = watched(stage, worker, 0.05)
    stage.until(lambda: len(worker.calls["lives"]) > 4)
    assert silences == []
    del worker._ready["lives"]
    stage.until(lambda: bool(silences))
    assert len(silences) == 1


def test_a_worker_that_is_not_wanted_any_more_is_not_asked(stage: DriverStage) -> None:
    worker = ToldWorker()
    task, silences = watched(stage, worker, 0.5)
    stage.until(lambda: "lives" in worker.calls)
    stage.make(task.cancel)
    stage.until(task.done)
    time.sleep(0.5)
    stage.drain()
    assert silences == []
    assert len(worker.calls["lives"]) == 1


def test_while_the_driver_is_stopped_nobody_is_silent(stage: DriverStage) -> None:
    """Its timers are all due when it goes on, and answers may still be on their way."""
    _, silences = watched(stage, ToldWorker(), 0.1)
    for _ in range(3):
        stage.make(time.sleep, 0.3)
    assert silences == []


def test_a_death_is_an_answer(stage: DriverStage) -> None:
    worker = ToldWorker()
    _, silences = watched(stage, worker)
    stage.until(lambda: "lives" in worker.calls)
    worker.calls["lives"][0].fail(worker.death)
    stage.until(lambda: len(worker.calls["lives"]) > 1)
    assert silences == []
