"""Engines in processes of their own, also in another environment: the same completions, and an end whatever happens."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from rlcore.api.runs import RunRecord
from rlcore.testing import RunTester
from tests.other_environment import other_environment

HELD = ("model", "run.toml", "-d", "held.jsonl")
HERE = """
import os
from rlcore.api import Score
import rlcore_plugin_only_here

def score(item):
    return Score(value=1.0, accuracy=1.0)
"""


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("count", ["2", "3"])
def test_several_engines_draw_what_one_draws(count: str, trained: tuple[RunTester, RunRecord]) -> None:
    tester, record = trained
    done = tester.run("eval", str(record.root), "--step", "2", "-i", count, "--out", "rows.jsonl", "--json").assert_ok()
    (logged,) = [row for row in record.evaluations() if row["step"] == 2]
    assert {"step": 2, **done.json["tasks"]["letters"]["figures"]} == logged
    assert rows_of(tester.folder / "rows.jsonl") == [{"task": "letters", **row} for row in record.evaluation_rows("letters", 2)]


def test_more_engines_than_prompts(tester: RunTester) -> None:
    assert tester.run("eval", *HELD, "-i", "5", "--json").assert_ok().json["tasks"]["held"]["completions"] == 4


@pytest.mark.full
def test_an_engine_in_an_environment_and_the_judge_out_of_it(tester: RunTester, tmp_path: Path) -> None:
    """The reward needs a package that the environment lacks."""
    environment = other_environment(tmp_path / "environment", without=("mpmath",))
    tester.write("here.py", HERE.replace("rlcore_plugin_only_here", "mpmath"))
    typed = ("-rt", "./here.py:score", "--out", "rows.jsonl", "--json")
    there = tester.run("eval", *HELD, *typed, "--inference-environment", str(environment)).assert_ok()
    rows = rows_of(tester.folder / "rows.jsonl")
    here = tester.run("eval", *HELD, *typed).assert_ok()
    assert rows_of(tester.folder / "rows.jsonl") == rows
    assert there.json["tasks"] == here.json["tasks"]


def test_an_engine_that_dies_is_one_sentence(tester: RunTester) -> None:
    done = tester.run("eval", *HELD, "-b", "faulty", "--fault", "loses", "-i", "2")
    assert done.exit_code == 1
    assert "reports nothing in flight and never answered" in done.stderr.splitlines()[-1]


def test_an_engine_that_hangs_ends_the_evaluation(tester: RunTester) -> None:
    words = ("-b", "faulty", "--fault", "hangs", "-i", "2", "-mnt", "64", "--producer-deadline", "2", "--eval-samples", "64")
    done = tester.run("eval", *HELD, *words)
    assert done.exit_code == 1, done
    assert "has not come back from its engine for 2 s; where it may need as long as that, raise --producer-deadline" in done.stderr


@pytest.mark.parametrize("producers", ["1", "2"])
def test_ctrl_c_ends_everything_and_writes_nothing(producers: str, tester: RunTester) -> None:
    tester.write("slow.py", "import time\n\ndef score(item):\n    time.sleep(600)\n")
    tester.in_process = False
    words = ("eval", *HELD, "-rt", "./slow.py:score", "-i", producers, "--out", "rows.jsonl")
    done = tester.interrupt(*words, on=lambda line: line.startswith("reward"))
    assert done.exit_code == 130, done
    assert done.stdout.splitlines()[-1] == "error: interrupted"
    assert not list(tester.folder.glob("*rows.jsonl*"))
    assert not family(tester.folder)


def family(folder: Path) -> list[int]:
    """Processes that were started in the folder and are still there, after a moment."""
    until = time.monotonic() + 10
    while (found := [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if stands_in(pid, folder)]) and (
        time.monotonic() < until
    ):
        time.sleep(0.1)
    return found


def stands_in(pid: int, folder: Path) -> bool:
    try:
        return pid != os.getpid() and Path(f"/proc/{pid}/cwd").resolve() == folder.resolve()
    except OSError:
        return False


def test_engines_end_with_the_command_that_was_killed(tester: RunTester) -> None:
    tester.write("slow.py", "import time\n\ndef score(item):\n    time.sleep(600)\n")
    tester.in_process = False

    def kill(line: str) -> bool:
        if line.startswith("reward"):
            time.sleep(3)
            for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
                if stands_in(pid, tester.folder) and b"eval" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    os.kill(pid, signal.SIGKILL)
        return False

    done = tester.interrupt("eval", *HELD, "-rt", "./slow.py:score", "-i", "2", on=kill)
    assert done.exit_code == -signal.SIGKILL
    assert not family(tester.folder)
