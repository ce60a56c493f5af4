"""The producer's end of a frozen engine, with real processes that load no model."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from rlcore_gateway import frozen_engine as module
from rlcore_gateway.frozen_engine import FrozenEngine
from rlcore_gateway.frozen_model import FrozenModel

BEATS = """
import json, subprocess, sys, time
sys.stdin.readline()
print(json.dumps({"files": {}}), flush=True)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
while True:
    print(json.dumps({"answered": 1}), flush=True)
    time.sleep(0.1)
"""


@contextmanager
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: list[str]) -> Iterator[tuple[FrozenEngine, list[psutil.Process]]]:
    """An engine whose process has loaded its model, and its guard, its process, and a child of that one."""
    monkeypatch.setattr(module, "_BOOT", BEATS)
    made = FrozenEngine(FrozenModel(name="black", model=str(tmp_path)), said.append, lambda error: said.append(str(error)), silence=1.0)
    made.start()
    try:
        yield made, _family(made)
    finally:
        made.close()


def _family(made: FrozenEngine) -> list[psutil.Process]:
    while True:
        if made.process is not None:
            with_children = [psutil.Process(made.process.pid), *psutil.Process(made.process.pid).children(recursive=True)]
            if len(with_children) == 3:
                return with_children
        threading.Event().wait(0.02)


def test_nothing_is_left_of_an_engine_that_is_stopped_together_with_its_guard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_LEAVE_SECONDS", 1.0)
    said: list[str] = []
    with engine(monkeypatch, tmp_path, said) as (_, family):
        os.killpg(family[0].pid, signal.SIGSTOP)
        while not said:
            threading.Event().wait(0.02)
    assert "gave no sign of life for 1 s" in said[0]
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive


def test_the_time_in_which_the_producer_is_stopped_is_no_silence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A wait of a process that was stopped with all others ends long after its time, and nothing was heard in it."""
    real, pauses, paused = module.select.select, [1], threading.Event()

    def select(reading: list[int], *others: object) -> object:
        if threading.current_thread().name != "rlcore-frozen" or not beating.is_set() or not pauses:
            return real(reading, *others)  # type: ignore[arg-type]
        pauses.clear()
        os.killpg(guard.pid, signal.SIGSTOP)
        threading.Event().wait(2.5)
        os.killpg(guard.pid, signal.SIGCONT)
        paused.set()
        return [], [], []

    beating, said = threading.Event(), list[str]()
    monkeypatch.setattr(module.select, "select", select)
    with engine(monkeypatch, tmp_path, said) as (made, (guard, *_)):
        beating.set()
        assert paused.wait(60)
        threading.Event().wait(1.5)
        assert made.process is not None
        assert made.process.pid == guard.pid
    assert not said
