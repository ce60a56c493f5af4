"""avg@k, pass@k and maj@k of a scored file, against values computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlcore_plugin_tools.score.group_figures import GroupFigures
from rlcore_plugin_tools.score.items import TextVerdict

from rlcore.api import Outcome, Score
from rlcore.testing import RunTester


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True).with_fakes()


def verdict(
    line: int, accuracy: float | None, parsed: str | None = None, *, place: int | None = None, row_id: str | None = None
) -> TextVerdict:
    outcome = Outcome.OK if accuracy else Outcome.WRONG
    return TextVerdict(
        line=line, source="", score=Score(value=1.0, accuracy=accuracy, parsed=parsed, outcome=outcome), place=place, row_id=row_id
    )


def test_a_list_of_completions_is_a_group() -> None:
    figures = GroupFigures()
    for place, (accuracy, parsed) in enumerate([(1.0, "3"), (0.0, "4"), (0.0, "4"), (1.0, "3")]):
        figures.add(verdict(1, accuracy, parsed, place=place))
    for place, (accuracy, parsed) in enumerate([(0.0, "5"), (0.0, None), (0.0, "6"), (1.0, "7")]):
        figures.add(verdict(2, accuracy, parsed, place=place))
    found = figures.as_json()
    assert found is not None
    assert (found["prompts"], found["completions"]) == (2, 8)
    assert found["avg"]["mean"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    assert found["pass@2"]["mean"] == pytest.approx(((1 - 1 / 6) + (1 - 3 / 6)) / 2)
    assert found["pass@4"]["mean"] == 1.0
    assert found["maj@4"]["mean"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert found["avg"]["low"] < found["avg"]["mean"] < found["avg"]["high"]


def test_rows_of_one_id_are_a_group_and_groups_may_differ_in_size() -> None:
    figures = GroupFigures()
    for line, (name, accuracy) in enumerate([("a", 1.0), ("b", 0.0), ("a", 0.0), ("c", 1.0), ("b", 0.0)], start=1):
        figures.add(verdict(line, accuracy, str(accuracy), row_id=name))
    found = figures.as_json()
    assert found is not None
    assert (found["prompts"], found["avg"]["mean"]) == (3, pytest.approx((0.5 + 0 + 1) / 3))
    assert (found["pass@2"]["mean"], found["pass@2"]["prompts"]) == (0.5, 2), "one prompt has a single completion"


def test_without_groups_there_are_no_figures() -> None:
    figures = GroupFigures()
    figures.add(verdict(1, 1.0))
    figures.add(verdict(2, 1.0, row_id="a"))
    figures.add(verdict(3, None, place=0))
    figures.add(verdict(3, None, place=1))
    figures.add(TextVerdict(line=3, source="", score=Score.failed(Outcome.TIMEOUT, "late"), place=2))
    assert figures.as_json() is None


def test_score_shows_the_figures_of_groups(tester: RunTester) -> None:
    row = {"messages": {"role": "user", "content": "say a"}, "gt_answer": "a"}
    tester.write_jsonl("groups.jsonl", [{**row, "completion": ["a", "b", "a", "c"]}, {**row, "completion": ["b", "b", "b", "b"]}])
    done = tester.run("score", "groups.jsonl", "--reward", "fake", "--workers", "1", "--json").assert_ok()
    assert done.json["groups"]["pass@4"]["mean"] == 0.5
    assert json.dumps(done.json["groups"], allow_nan=False)
    shown = tester.run("score", "groups.jsonl", "--reward", "fake", "--workers", "1").assert_ok().stdout
    assert "8 judged completions of 2 prompts" in shown
    assert next(line.split() for line in shown.splitlines() if line.startswith("pass@4"))[1] == "0.500"


def test_there_is_no_majority_where_no_answer_is_known() -> None:
    figures = GroupFigures()
    for place in range(4):
        figures.add(verdict(1, 1.0, place=place))
    found = figures.as_json()
    assert found is not None
    assert found["pass@4"]["mean"] == 1.0
    assert not any(name.startswith("maj") for name in found)
