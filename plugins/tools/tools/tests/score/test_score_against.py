"""``rlcore score --against``: the verdicts of two rewards beside each other. And what is said if nothing could be judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester

ROW = {"messages": {"role": "user", "content": "say a"}, "gt_answer": "a"}
LENIENT = "def score(item):\n    assert item.text != 'x'\n    return float(item.text.lower() == item.columns['gt_answer'])\n"


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    texts: list[Any] = ["a", ["A", "b", "a"], "x", None]
    made.write_jsonl("samples.jsonl", [{**ROW, "id": n, "completion": text} for n, text in enumerate(texts, start=1)])
    made.write("mine.py", LENIENT)
    return made


def test_both_verdicts_are_counted_and_the_rows_that_differ_are_named(tester: RunTester) -> None:
    argv = ("score", "samples.jsonl", "--reward", "fake", "--against", "./mine.py:score", "--workers", "2", "--out", "o.jsonl")
    found = tester.run(*argv, "--json").assert_ok().json["agreement"]
    assert (found["completions"], found["agree"], found["differ"]) == (6, 4, 2)
    assert found["table"]["accepted"] == {"accepted": 2, "refused": 0, "failed": 0, "invalid": 0}
    assert found["table"]["refused"] == {"accepted": 1, "refused": 1, "failed": 1, "invalid": 0}
    assert [(row["line"], row["completion"], row["id"]) for row in found["different"]] == [(2, 0, 2), (3, None, 3)]
    assert found["different"][0]["reward"]["answer"] == "refused"
    assert found["different"][0]["against"]["answer"] == "accepted"
    rows = [json.loads(line) for line in (tester.folder / "o.jsonl").read_text().splitlines()]
    assert [row["agrees"] for row in rows] == [True, False, True, True, False, True]
    assert (rows[1]["value"], rows[1]["against"]["value"]) == (0.0, 1.0)


def test_the_table_is_shown(tester: RunTester) -> None:
    shown = tester.run("score", "samples.jsonl", "--reward", "fake", "--against", "./mine.py:score").assert_ok().stdout
    assert "fake and score agree on 4 of 6 completions (66.7%)" in shown
    assert "where they differ" in shown
    assert "2, completion 0" in shown


def test_a_reward_can_stand_against_itself_with_other_options(tester: RunTester) -> None:
    argv = ("score", "samples.jsonl", "--reward", "fake", "--against", "fake", "--json")
    found = tester.run(*argv, "--against-option", "correct=2").assert_ok().json["agreement"]
    assert (found["reward"], found["against"], found["table"]["accepted"]["accepted"]) == ("fake", "fake (the other)", 2)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--against", "nobody"], "--against: there is no reward 'nobody'"),
        (["--against", "fake", "--against-option", "correct=much"], "--against-option correct=much"),
        (["--against-option", "correct=1"], "name that reward"),
    ],
    ids=str,
)
def test_a_second_reward_that_cannot_work_is_refused(tester: RunTester, argv: list[str], said: str) -> None:
    tester.run("score", "samples.jsonl", "--reward", "fake", *argv).assert_refused(said)


def test_no_row_that_could_be_judged_is_exit_code_1(tester: RunTester) -> None:
    tester.write_jsonl("none.jsonl", [ROW, {**ROW, "gt_answer": None, "completion": "a"}])
    done = tester.run("score", "none.jsonl", "--reward", "fake", "--workers", "1")
    assert done.exit_code == 1
    assert 'error: no row could be judged; the first: none.jsonl:1: the row has no "completion"' in done.stderr


def test_an_audit_that_judges_nothing_is_exit_code_1(tester: RunTester) -> None:
    tester.write(
        "refuses.py", "def score(item):\n    from rlcore.api import Outcome, Score\n    return Score.failed(Outcome.INVALID, 'gold')\n"
    )
    tester.write_jsonl("rows.jsonl", [ROW])
    done = tester.run("audit", "--reward", "./refuses.py:score", "--data", "rows.jsonl", "--workers", "1")
    assert done.exit_code == 1
    assert "error: no case could be judged; the first: " in done.stderr
