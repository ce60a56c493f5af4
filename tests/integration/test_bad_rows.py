"""Runs on data with bad rows: refused, or left out in every process, counted, listed in the run folder, and the same when resumed; data
sources without end; prompts that ask for another mark than the reward reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester

PICKY = """
from rlcore.api import Reward, Score

class Picky(Reward):
    requires = ("gt_answer",)

    def check(self, columns):
        return f"it dislikes '{columns['gt_answer']}'" if columns["gt_answer"] == "z" else None

    def score(self, item):
        return Score(value=float(item.text.startswith(item.columns["gt_answer"])), accuracy=0.0)
"""
ENDLESS = """
import itertools
from rlcore.api import DataSourceSpec, hookimpl
from rlcore.api.data import RowSource
rlcore_api = "2.0"

class Forever(RowSource):
    def rows(self, path):
        for number in itertools.count(1):
            letter = "abc"[number % 3]
            yield number, {"messages": {"role": "user", "content": letter}, "gt_answer": letter}

@hookimpl
def rlcore_register_data_sources():
    return [DataSourceSpec(name="forever", target="rlcore_plugin_forever:Forever", summary="No end", prefix="forever:")]
"""


def row(gold: str, **more: Any) -> dict[str, Any]:
    return {"messages": {"role": "user", "content": gold[0]}, "gt_answer": gold, **more}


MIXED = [row("a"), row("notfound"), row("b"), row("c"), row("a", solution_is_valid="Incomplete"), row("b"), row("N/A"), row("c")]
ABSENT = '"gt_answer" is "notfound", which stands for an answer that is absent'
SAID = (
    f"train: 3 rows are bad and are left out, 5 remain (--bad-rows drop): 1 × {ABSENT}; 1 × the row says that it is not valid: "
    '"solution_is_valid" is "Incomplete"; 1 × "gt_answer" is "N/A", which stands for an answer that is absent'
)


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write("rewards.py", PICKY)
    made.fake_run(run={"num_episodes": 2, "max_steps": 90}, log={"save_interval": 1})
    made.write_jsonl("train.jsonl", MIXED)
    return made


def listed(tester: RunTester, run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tester.folder / run / "bad_rows.jsonl").read_text(encoding="utf-8").splitlines()]


def test_bad_rows_refuse_the_data_unless_the_user_drops_them(tester: RunTester) -> None:
    refused = tester.run("train", "run.toml")
    refused.assert_refused(f"train.jsonl:2: {ABSENT} (and 2 more bad rows in this file; --bad-rows drop leaves them out)")
    assert not (tester.folder / "runs").exists()


def test_a_dry_run_counts_what_is_left_out(tester: RunTester) -> None:
    assert SAID in tester.run("train", "run.toml", "--bad-rows", "drop", "--dry-run").assert_ok().stdout
    planned = tester.run("train", "run.toml", "--bad-rows", "drop", "--dry-run", "--json").assert_ok().json
    assert SAID in planned["notes"]
    assert planned["bad_rows"]["train"][ABSENT] == 1
    assert sum(planned["bad_rows"]["train"].values()) == 3


def test_a_run_says_counts_and_lists_what_is_left_out(tester: RunTester) -> None:
    done = tester.run("train", "run.toml", "--bad-rows", "drop", "--json").assert_ok()
    assert (done.stdout + done.stderr).count(SAID) == 2  # when it starts, and among the remarks of the JSON
    assert done.json["ledger"]["trained"] == 10
    assert done.json["bad_rows"]["train"][ABSENT] == 1
    assert SAID in done.json["remarks"]
    rows = listed(tester, done.json["run"])
    assert [(one["data"], Path(one["file"]).name, one["row"]) for one in rows] == [("train", "train.jsonl", number) for number in (2, 5, 7)]
    assert rows[0]["reason"] == ABSENT


def test_a_whole_data_set_leaves_no_file_and_says_nothing(tester: RunTester) -> None:
    tester.write_jsonl("train.jsonl", [row(letter) for letter in "abc"])
    done = tester.run("train", "run.toml", "--bad-rows", "drop", "--json").assert_ok()
    assert not (tester.folder / done.json["run"] / "bad_rows.jsonl").exists()
    assert done.json["bad_rows"] == {}


def test_rows_that_the_reward_cannot_score_are_left_out_too(tester: RunTester) -> None:
    tester.write_jsonl("train.jsonl", [*MIXED, row("z"), row("z")])
    words = ("train", "run.toml", "-rt", "./rewards.py:Picky")
    tester.write_jsonl("picky.jsonl", [row("a"), row("z")])
    tester.run(*words, "-d", "picky.jsonl").assert_refused("picky.jsonl:2: reward ", "cannot score this row: it dislikes 'z'")
    done = tester.run(*words, "--bad-rows", "drop", "--json").assert_ok()
    assert [one["row"] for one in listed(tester, done.json["run"])] == [2, 5, 7, 9, 10]
    assert any("it dislikes '…'" in reason and count == 2 for reason, count in done.json["bad_rows"]["train"].items())
    tester.write_jsonl("train.jsonl", [row("z"), row("notfound")])
    tester.run(*words, "--bad-rows", "drop").assert_refused(
        "train.jsonl:1: ", "no row of train can be scored, so --bad-rows drop leaves none"
    )


def test_every_process_leaves_out_the_same_rows(tester: RunTester) -> None:
    tester.write_jsonl("train.jsonl", [*MIXED, row("z")])
    done = tester.run(
        "train", "run.toml", "-rt", "./rewards.py:Picky", "--bad-rows", "drop", "--runtime", "local", "--max-staleness", "1", "--json"
    ).assert_ok()
    assert done.json["ledger"]["trained"] == 10
    assert len(listed(tester, done.json["run"])) == 4


def test_held_out_rows_are_left_out_and_counted_by_task(tester: RunTester) -> None:
    tester.write_jsonl("held.jsonl", [row("a"), row("NaN"), row("b")])
    words = ("-ed", '{"say": "held.jsonl"}', "-ei", "9")
    tester.run("train", "run.toml", "-d", "held.jsonl", *words).assert_refused("held.jsonl:2: ", '"gt_answer" is "NaN"')
    done = tester.run("train", "run.toml", *words, "--bad-rows", "drop", "--json").assert_ok()
    assert sum(done.json["bad_rows"]["eval/say"].values()) == 1
    last = listed(tester, done.json["run"])[-1]
    assert (last["data"], Path(last["file"]).name, last["row"]) == ("eval/say", "held.jsonl", 2)
    answers = (tester.folder / done.json["run"] / "eval/say/step-0.jsonl").read_text().splitlines()
    assert [json.loads(line)["gold"] for line in answers] == ["a", "b"]
    found = tester.run("eval", done.json["run"], "--json").assert_ok()
    assert sum(found.json["tasks"]["say"]["bad_rows"].values()) == 1
    assert found.json["tasks"]["say"]["prompts"] == 2


def test_a_file_of_bad_rows_leaves_nothing_to_train_on(tester: RunTester) -> None:
    tester.write_jsonl("train.jsonl", [row("notfound"), row("proof")])
    for words in ((), ("--dry-run",)):
        tester.run("train", "run.toml", "--bad-rows", "drop", *words).assert_refused(
            f"train.jsonl:1: {ABSENT}; so are all other rows of this file (2 in all), and --bad-rows drop leaves none"
        )


def test_a_resumed_run_sees_the_same_rows(tester: RunTester) -> None:
    done = tester.run("train", "run.toml", "--bad-rows", "drop", "--json", "--max-steps", "1").assert_ok()
    run = done.json["run"]
    before = listed(tester, run)
    tester.run("resume", run, "--bad-rows", "refuse", "--max-steps", "2").assert_refused("a resumed run keeps its data.bad_rows")
    again = tester.run("resume", run, "--max-steps", "2", "--json").assert_ok()
    assert listed(tester, run) == before
    assert again.json["bad_rows"] == done.json["bad_rows"]
    repaired = [MIXED[0], row("b"), *MIXED[2:]]
    tester.write_jsonl("train.jsonl", repaired)
    tester.run("resume", run, "--max-steps", "3").assert_refused("prompts was 5 when this run began and is 6 now")
    repaired[2] = row("None")
    tester.write_jsonl("train.jsonl", repaired)
    tester.run("resume", run, "--max-steps", "3").assert_refused("train has changed since the run")


def test_max_rows_bounds_the_data(tester: RunTester) -> None:
    done = tester.run("train", "run.toml", "--max-rows", "1", "--json").assert_ok()
    assert done.json["ledger"]["trained"] == 2
    tester.run("train", "run.toml", "--max-rows", "0").assert_refused("--max-rows 0")


def test_a_source_without_end_is_refused_by_a_dry_run_or_bounded(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.data.prompts._MOST_ROWS", 20_000)
    tester.plugins.install("forever", ENDLESS)
    said = "forever:letters: it has more than 20000 rows, perhaps without end; say how many to read, for example --max-rows 100000"
    tester.run("train", "run.toml", "-d", "forever:letters", "--dry-run").assert_refused(said)
    tester.run("train", "run.toml", "-d", "forever:letters").assert_refused(said)
    tester.run("train", "run.toml", "-d", "forever:letters", "--max-rows", "4", "--dry-run").assert_ok()
    done = tester.run("train", "run.toml", "-d", "forever:letters", "--max-rows", "4", "--json").assert_ok()
    assert done.json["ledger"]["trained"] == 8
