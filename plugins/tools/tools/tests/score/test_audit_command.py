"""``rlcore audit`` as it is typed: exit codes, the report, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.testing import RunTester

ROW = {"messages": {"role": "user", "content": "say 41"}, "gt_answer": "41", "completion": "41"}
GROUPS = """
from rlcore.api import Reward, Score

class Groups(Reward):
    group_level = True

    def score(self, item):
        return Score(value=0.0)

    def score_group(self, items):
        return [Score(value=0.5 * place) for place, _ in enumerate(items)]
"""
KIND = "def score(item):\n    return float(item.columns['gt_answer'] in item.text)\n"


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write_jsonl("rows.jsonl", [ROW])
    made.write("kind.py", KIND)
    return made


def test_a_sound_reward_has_no_finding(tester: RunTester) -> None:
    done = tester.run("audit", "--reward", "fake", "--data", "rows.jsonl", "--workers", "2").assert_ok()
    assert "findings: none" in done.stdout
    assert "slowest" in done.stdout
    assert done.written == ()


def test_a_finding_is_exit_code_1_and_is_named(tester: RunTester) -> None:
    done = tester.run("audit", "--reward", "./kind.py:score", "--data", "rows.jsonl", "--workers", "2")
    assert done.exit_code == 1
    assert "every candidate" in done.stdout
    assert "accepted, and must not be" in done.stdout


def test_a_finding_shows_the_number_that_contradicts_it(tester: RunTester) -> None:
    tester.write("strict.py", "def score(item):\n    return 0.0\n")
    done = tester.run("audit", "--reward", "./strict.py:score", "--data", "rows.jsonl", "--workers", "2")
    assert done.exit_code == 1
    assert next(line for line in done.stdout.splitlines() if line.startswith("row 1")).split()[5:8] == ["ok,", "value", "0"]


def test_a_reward_of_groups_is_not_audited(tester: RunTester) -> None:
    tester.write("groups.py", GROUPS)
    for rows in ([], ["--data", "rows.jsonl"]):
        tester.run("audit", "--reward", "./groups.py:Groups", *rows).assert_refused("judges the responses of a prompt together")


def test_as_json_every_case_is_there(tester: RunTester) -> None:
    done = tester.run("audit", "--reward", "fake", "--data", "rows.jsonl", "--json").assert_ok()
    report = done.json
    assert report["findings"] == []
    assert report["reward"] == "fake"
    assert sum(report["counts"].values()) == len(report["cases"])
    assert len(report["slowest"]) == 5
    assert report["slowest"][0]["seconds"] >= report["slowest"][1]["seconds"]


def test_all_lists_every_case(tester: RunTester) -> None:
    assert "white space" in tester.run("audit", "--reward", "fake", "--data", "rows.jsonl", "--all").assert_ok().stdout


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "no reward is named"),
        (["--reward", "fake"], "--data FILE.jsonl"),
        (["--reward", "./kind.py:score"], "comes with no cases and cannot judge a text without a data row"),
        (["--reward", "./kind.py:score"], "--data FILE.jsonl"),
        (["--reward", "fake", "--data", "absent.jsonl"], "no such data file"),
        (["--reward", "fake", "--reward", "fake"], "one reward is audited at a time"),
        (["--reward", "fak"], "did you mean 'fake'"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(tester: RunTester, argv: list[str], said: str) -> None:
    tester.run("audit", *argv).assert_refused(said)
