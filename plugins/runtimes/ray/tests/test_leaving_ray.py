"""A driver that Ray does not let go: it ends all the same, with a sentence. `make chaos ARGS='--only ray-head'` stops real heads."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from rlcore_plugin_ray import session as module
from rlcore_plugin_ray.session import RaySession

from rlcore.api.runtime import RunSection, RuntimeLostError


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Ray's shutdown waits until the event is set."""
    let_go = threading.Event()
    monkeypatch.setattr(ray, "shutdown", let_go.wait)
    monkeypatch.setattr(module, "_PART_SECONDS", 0.05)
    yield let_go
    let_go.set()


@pytest.fixture
def at_exit(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What Python would call as it ends; the shutdown of Ray is among it, as Ray has it."""
    calls = list[Callable[[], object]]()

    def register(function: Callable[..., object], *arguments: Any) -> None:
        calls.append(lambda: function(*arguments))

    monkeypatch.setattr(atexit, "register", register)
    monkeypatch.setattr(atexit, "unregister", lambda function: calls.clear())
    calls.append(ray.shutdown)
    return calls


def test_a_daemon_that_is_stopped_ends_the_run_with_a_sentence(stuck: threading.Event, at_exit: list[Callable[[], object]]) -> None:
    with pytest.raises(RuntimeLostError, match=r"^the Ray daemon of this machine does not answer, .* with --resume auto$"):
        RaySession(None, RunSection(), print)._disconnect()


def test_a_head_that_is_lost_is_told_once(stuck: threading.Event, at_exit: list[Callable[[], object]]) -> None:
    session = RaySession(None, RunSection(), print)
    session._head_lost()
    session._disconnect()


def test_the_process_ends_without_waiting_for_ray_again(
    stuck: threading.Event, at_exit: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = list[int]()
    monkeypatch.setattr(os, "_exit", codes.append)
    session = RaySession(None, RunSection(), print)
    session._head_lost()
    session._disconnect()
    (last,) = at_exit
    last()
    assert codes == [1]
    stuck.set()
    for thread in threading.enumerate():
        if thread.name == "leaves Ray":
            thread.join()
    last()
    assert codes == [1], "Ray was left in time after all, and Python ends in order"
