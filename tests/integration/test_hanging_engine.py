"""An engine that does not come back ends a run in one process, after the deadline or soon after one Ctrl-C; in a process of its own it is
replaced."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from rlcore.testing.run_tester import QUIET

PROGRAM = """
import sys
from rlcore.runtime import watchdog
from rlcore_plugin_workers import worker_runtime
from rlcore.cli import main
watchdog._INTERRUPTED_SECONDS, watchdog._CLOSING_SECONDS, worker_runtime._INTERRUPTED_SECONDS = 0.5, 1.0, 0.5
{}
sys.exit(main(sys.argv[1:]))
"""
"""A fresh interpreter: a fork of ``tests/warm_programs.py`` does not find its main thread to interrupt it."""
TELLS = """
from rlcore.testing.inference.faulty_inference import FaultyInference

rlcore_api = "2.0"
poll = FaultyInference.poll


def told(self, timeout):
    if self._polls == 2 and (self._running or self._waiting):
        print("the engine hangs", flush=True)
    return poll(self, timeout)


FaultyInference.poll = told
"""
"""A plugin, which the engine's process loads, too: a line at the third poll with work."""
SWALLOWS = """
import threading
from rlcore.testing.inference.faulty_inference import FaultyInference
def poll(self, timeout):
    while True:
        try:
            threading.Event().wait()
        except Exception:
            continue
FaultyInference.poll = poll
"""
NEVER_CLOSES = """
import threading
from rlcore.testing.inference.faulty_inference import FaultyInference
FaultyInference.close = lambda self: threading.Event().wait()
"""


@contextmanager
def started(tester: RunTester, config: str, *argv: str, before: str = "") -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(before), "train", config, *argv],
        cwd=tester.folder,
        env={**tester.plugins.environment, **QUIET},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def hanging(tmp_path: Path, staleness: int, steps: int = 12) -> tuple[RunTester, str]:
    tester = RunTester(tmp_path).with_fakes()
    options = {"name": "faulty", "options": {"fault": "hangs"}}
    return tester, tester.fake_run(inference=options, schedule={"max_staleness": staleness}, run={"num_episodes": 20, "max_steps": steps})


def test_an_engine_that_hangs_ends_the_run_after_the_deadline(tmp_path: Path) -> None:
    with started(*hanging(tmp_path, 0), "--producer-deadline", "1") as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    line = said.splitlines()[-1]
    assert re.match(r"error: inference backend faulty has not returned for 1(\.\d+)? s and was last at ", line)
    assert "raise --producer-deadline; " in line
    assert "Traceback" not in said
    assert "is not used" not in said


def test_an_engine_that_hangs_in_a_process_of_its_own_is_replaced(tmp_path: Path) -> None:
    """Each one hangs at its third poll, after it has delivered something: none fails several times in a row."""
    with started(*hanging(tmp_path, 1, steps=3), "--producer-deadline", "2") as process:
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "warning: producer-0 was lost (its engine FaultyInference has not come back for 2 s, and was last at " in said
    assert "producer-0.1 takes its place" in said
    assert "3 updates" in said


@pytest.mark.parametrize("staleness", [0, 1])
def test_one_ctrl_c_ends_a_run_whose_engine_hangs(tmp_path: Path, staleness: int) -> None:
    tester, config = hanging(tmp_path, staleness)
    tester.plugins.install("tells", TELLS)
    with started(tester, config) as process:
        assert process.stdout is not None
        said = ""
        while "the engine hangs" not in said:
            said = process.stdout.readline()
            assert said, "the run has ended"
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 130, said
    if staleness:
        assert "Stopped early, and saved." in said
    else:
        assert "inference backend faulty has not returned for" in said
        assert said.splitlines()[-1] == "error: interrupted"


def test_an_engine_that_swallows_errors_does_not_keep_the_run(tmp_path: Path) -> None:
    with started(*hanging(tmp_path, 0), "--producer-deadline", "1", before=SWALLOWS) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.splitlines()[-1].startswith("error: inference backend faulty has not returned for 1")


def test_an_engine_that_hangs_and_does_not_close_either_is_killed_with_its_process(tmp_path: Path) -> None:
    with started(*hanging(tmp_path, 0), "--producer-deadline", "1", before=NEVER_CLOSES) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.splitlines()[-1].endswith("raise --producer-deadline; the run could not be closed and is killed")
