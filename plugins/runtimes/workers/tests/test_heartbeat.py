"""The driver judges who is silent; what the driver itself missed is not held against anybody."""

from __future__ import annotations

import time
from typing import Any

from rlcore_plugin_workers.driver_inbox import DriverInbox
from rlcore_plugin_workers.heartbeat import Heartbeats

from tests.worker_answers import ToldWorker


def watched(worker: ToldWorker, seconds: float = 0.1) -> tuple[DriverInbox, list[Any]]:
    inbox, silences = DriverInbox(), list[Any]()
    Heartbeats(inbox, seconds).watch(worker, lambda: not worker.killed, silences.append)
    return inbox, silences


def test_a_worker_that_does_not_answer_is_told_once() -> None:
    inbox, silences = watched(ToldWorker())
    inbox.until(lambda: bool(silences), 20.0)
    inbox.until(lambda: False, 0.3)
    assert [str(error) for error in silences] == ["its process has not answered for 0.1 s"]


def test_a_worker_that_answers_is_asked_again_and_again() -> None:
    worker = ToldWorker(lives=lambda: 1)
    inbox, silences = watched(worker, 0.05)
    inbox.until(lambda: len(worker.calls["lives"]) > 4, 20.0)
    assert silences == []
    del worker._ready["lives"]
    inbox.until(lambda: bool(silences), 20.0)
    assert len(silences) == 1


def test_a_worker_that_is_not_wanted_any_more_is_not_asked() -> None:
    worker = ToldWorker()
    inbox, silences = watched(worker, 0.05)
    worker.kill()
    inbox.until(lambda: False, 0.3)
    assert silences == []
    assert len(worker.calls["lives"]) == 1


def test_while_the_driver_is_stopped_nobody_is_silent() -> None:
    """Its timers are all due when it goes on, and answers may still be on their way."""
    worker = ToldWorker()
    inbox, silences = watched(worker, 0.1)
    for _ in range(3):
        time.sleep(0.3)
        inbox.until(lambda: False, 0.001)
    assert silences == []


def test_a_death_is_an_answer() -> None:
    worker = ToldWorker()
    inbox, silences = watched(worker, 0.1)
    worker.calls["lives"][0].fail(worker.death)
    inbox.until(lambda: len(worker.calls["lives"]) > 1, 20.0)
    assert silences == []
