"""Runs that go wrong on purpose: the user reads the sentence on the screen, and again at the end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester

HOPELESS = "def hopeless(item):\n    return 0.0\n"


def trained(folder: Path, *words: str, **sections: Any) -> Any:
    tester = RunTester(folder, in_process=True).with_fakes()
    tester.write("rewards.py", HOPELESS)
    steps = {"run": {"num_episodes": 15, "max_steps": 24}, **sections}
    return tester.run("train", tester.fake_run(**steps), *words).assert_ok()


def warnings(outcome: Any) -> list[str]:
    return [line.removeprefix("warning: ") for line in outcome.lines if line.startswith("warning: after update")]


@pytest.mark.parametrize(
    ("words", "sections", "sign"),
    [
        (("-rt", "./rewards.py:hopeless"), {}, r"after update 10: the reward was 0 in each of the last 10 updates, so nothing"),
        ((), {"sampling": {"max_new_tokens": 1}}, r"after update \d+: \d+ % of the answers of the last 5 updates were cut off at -mnt 1,"),
    ],
    ids=["the reward is always 0", "every answer is cut off"],
)
def test_the_user_is_told_once_while_it_runs_and_at_the_end(tmp_path: Path, words: Any, sections: Any, sign: str) -> None:
    outcome = trained(tmp_path, *words, **sections)
    (warning,) = [line for line in warnings(outcome) if re.match(sign, line)]
    assert f"note                {warning}" in outcome.lines
    steps = [line.split()[1] for line in outcome.lines[: outcome.lines.index(f"warning: {warning}")] if line.startswith("step ")]
    assert len(steps) < 24, "it is told while the run goes on"


def test_a_run_that_learns_is_told_of_nothing_else(tmp_path: Path) -> None:
    """The fake policy knows no end of an answer."""
    assert [warning for warning in warnings(trained(tmp_path)) if "cut off at -mnt 2" not in warning] == []
