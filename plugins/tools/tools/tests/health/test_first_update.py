"""The first update of a run whose reward cannot read the answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore_plugin_tools.health import rlcore_note_step, rlcore_run_started
from rlcore_plugin_tools.health.first_update import unread_answers

from rlcore.api import RunInfo
from rlcore.testing import RunTester

SAID = "called every answer malformed"


@pytest.mark.parametrize(
    ("metrics", "who"),
    [
        ({"reward/outcome/malformed": 1.0}, "the reward called"),
        ({"reward/outcome/malformed": 1.0, "reward/format": 0.0}, "the reward called"),
        (
            {"reward/outcome/malformed": 0.6, "reward/outcome/wrong": 0.4, "reward/format": 0.0},
            "the reward called",
        ),  # the others were cut off
        ({"reward/outcome/malformed": 0.2, "reward/exact/outcome/malformed": 1.0, "reward/format": 0.5}, "the reward exact called"),
    ],
)
def test_answers_that_no_reward_reads_are_told(metrics: dict[str, float], who: str) -> None:
    assert unread_answers(metrics).startswith(f"{who} every answer malformed: ")


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"reward/outcome/wrong": 1.0, "reward/format": 1.0},
        {"reward/outcome/malformed": 0.99, "reward/outcome/ok": 0.01, "reward/format": 0.01},
        {"reward/outcome/malformed": 0.3, "reward/outcome/wrong": 0.7, "reward/format": 0.0},  # most were cut off: another rule says so
        {"reward/outcome/malformed": float("nan"), "reward/format": float("nan")},
    ],
)
def test_some_answers_that_are_read_are_enough(metrics: dict[str, float]) -> None:
    assert unread_answers(metrics) == ""


def test_only_the_first_update_is_judged(tmp_path: Path) -> None:
    rlcore_run_started(RunInfo(folder=tmp_path))
    bad = {"reward/outcome/malformed": 1.0}
    assert [any(SAID in said for said in rlcore_note_step(step, bad)) for step in (1, 2, 3)] == [True, False, False]


STRICT = """
from rlcore.api import Outcome, Score

def strict(item):
    return Score(value=0.0, accuracy=0.0, format_ok=False, outcome=Outcome.MALFORMED, reason="no box")
"""


def test_the_user_is_told_once_and_at_the_end(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.write("rewards.py", STRICT)
    done = tester.run("train", tester.fake_run(), "-rt", "./rewards.py:strict").assert_ok()
    (warning,) = [line for line in done.lines if line.startswith("warning: ") and SAID in line]
    assert warning.startswith("warning: after update 1: the reward called every answer malformed: ")
    assert len([line for line in done.lines if SAID in line]) == 2, "while it runs, and among the notes at the end"
    assert SAID not in tester.run("train", tester.fake_run()).assert_ok().stdout
