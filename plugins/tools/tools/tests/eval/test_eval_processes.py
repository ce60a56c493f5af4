"""Engines in processes of their own, also in another environment: the same completions, and an end whatever happens."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET
from tests.eval_rows import answers_of, tasks_of
from tests.other_environment import other_environment
from tests.process_family import await_end, descendants

HELD = ("model", "run.toml", "-d", "held.jsonl")
HERE = """
from rlcore.api import Score
import mpmath

def score(item):
    return Score(value=1.0, accuracy=1.0)
"""
SLOW = """
import time
from pathlib import Path

def score(item):
    Path("judging").touch()
    time.sleep(600)
"""


@pytest.mark.parametrize("count", ["2", "3"])
def test_several_engines_draw_what_one_draws(count: str, trained: tuple[RunTester, RunRecord]) -> None:
    tester, record = trained
    done = tester.run("eval", str(record.root), "--step", "2", "-i", count, "--out", f"by-{count}.jsonl", "--json").assert_ok()
    (logged,) = [row for row in record.evaluations() if row["step"] == 2]
    assert {"step": 2, **tasks_of(done.json)["letters"]["figures"]} == logged
    assert answers_of(tester.folder / f"by-{count}.jsonl") == [{"task": "letters", **row} for row in record.evaluation_rows("letters", 2)]


def test_more_engines_than_prompts(tester: RunTester) -> None:
    assert tester.run("eval", *HELD, "-i", "5", "--json").assert_ok().json["tasks"]["held"]["completions"] == 4


@pytest.mark.full
def test_an_engine_in_an_environment_and_the_judge_out_of_it(tester: RunTester, tmp_path: Path) -> None:
    """The reward needs a package that the environment lacks."""
    environment = other_environment(tmp_path / "environment", without=("mpmath",))
    tester.write("here.py", HERE)
    typed = ("-rt", "./here.py:score", "--json")
    there = tester.run("eval", *HELD, *typed, "--inference-environment", str(environment), "--out", "there.jsonl").assert_ok()
    here = tester.run("eval", *HELD, *typed, "--out", "here.jsonl").assert_ok()
    assert answers_of(tester.folder / "here.jsonl") == answers_of(tester.folder / "there.jsonl")
    assert tasks_of(there.json) == tasks_of(here.json)


def test_an_engine_that_dies_is_one_sentence(tester: RunTester) -> None:
    done = tester.run("eval", *HELD, "-b", "faulty", "--fault", "loses", "-i", "2")
    assert done.exit_code == 1
    assert "reports nothing in flight and never answered" in done.stderr.splitlines()[-1]


def test_an_engine_that_hangs_ends_the_evaluation(tester: RunTester) -> None:
    words = ("-b", "faulty", "--fault", "hangs", "-i", "2", "-mnt", "64", "--producer-deadline", "2", "--eval-samples", "64")
    done = tester.run("eval", *HELD, *words)
    assert done.exit_code == 1, done
    assert "has not returned from its engine for 2 s; if it may need that long, raise --producer-deadline" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)], ids=["ctrl-c", "killed"])
@pytest.mark.parametrize("engines", [1, 2])
def test_nothing_outlives_the_command(engines: int, number: signal.Signals, code: int, tester: RunTester) -> None:
    """It is ended while its answers are judged: engines and judges end with it, and nothing is written."""
    tester.write("slow.py", SLOW)
    words = ("eval", *HELD, "-rt", "./slow.py:score", "-i", str(engines), "--out", "rows.jsonl")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=tester.folder,
        env={**tester.plugins.environment, **QUIET},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        until = time.monotonic() + 60
        while not (tester.folder / "judging").exists():
            assert time.monotonic() < until, "nothing is judged"
            time.sleep(0.1)
        family = descendants(command.pid)
        command.send_signal(number)
        assert command.wait(60) == code
        assert command.stderr is not None
        said = command.stderr.read() if number is signal.SIGINT else "error: interrupted\n"
    assert len(family) >= (engines if engines > 1 else 0) + 1
    await_end(family, 30)
    assert said.splitlines()[-1] == "error: interrupted"
    assert not list(tester.folder.glob("*rows.jsonl*"))
