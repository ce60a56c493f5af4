"""Runs on rows of other shapes: a format that is found or named, columns by other names; in training, an evaluation, flags."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from rlcore.testing import RunTester


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write_jsonl("raw.jsonl", [{"fake": letter} for letter in "abcabc"])
    made.write_jsonl("named.jsonl", [{"ask": letter, "truth": {"text": letter}} for letter in "abcabc"])
    return made


def test_a_run_trains_on_rows_whose_format_was_found_and_says_so_once(tester: RunTester) -> None:
    config = tester.fake_run(data={"dataset": "raw.jsonl"}, eval={"eval_dataset": {"held": "raw.jsonl"}, "eval_interval": 1})
    done = tester.run("train", config).assert_ok()
    said = [line for line in (done.stdout + done.stderr).splitlines() if "read by the row format fake of rlcore-plugin-fakes" in line]
    assert len(said) == 1, done


def test_a_named_format_is_in_the_plan_the_run_file_and_the_manifest(tester: RunTester) -> None:
    config = tester.fake_run(data={"dataset": "raw.jsonl", "format": "fake"})
    assert "row format" in tester.run("train", config, "--dry-run").assert_ok().stdout
    folder = tester.folder / tester.run("train", config, "--json").assert_ok().json["run"]
    assert tomllib.loads((folder / "run.toml").read_text())["data"]["format"] == "fake"
    plugins = {(one["kind"], one["name"]) for one in json.loads((folder / "manifest.json").read_text())["plugins"]}
    assert ("format", "fake") in plugins


def test_columns_by_other_names_are_flags_too(tester: RunTester) -> None:
    config = tester.fake_run(data={"dataset": "named.jsonl"})
    columns = json.dumps({"messages": "ask", "gt_answer": "truth.text"})
    folder = tester.folder / tester.run("train", config, "--columns", columns, "--json").assert_ok().json["run"]
    assert tomllib.loads((folder / "run.toml").read_text())["data"]["columns"] == {"messages": "ask", "gt_answer": "truth.text"}
    assert tester.run("train", str(folder / "run.toml"), "--json").assert_ok().json["steps"] == 3
    tester.run("train", config, "--columns", '{"messages": "ask", "gt_answer": "truth.txt"}', "--dry-run").assert_refused(
        'named.jsonl:1: the row has no "truth.txt", which [data.columns] names for "gt_answer"'
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"format": "fike"}, ("format", "there is no row format 'fike', did you mean 'fake'")),
        ({"format": "none"}, ("raw.jsonl:1", 'the row has no "messages" (it has "fake")')),
        ({"columns": {"gt_answer": ""}}, ("columns", "not empty")),
        ({"columns": ["gt_answer"]}, ("columns", "a table")),
    ],
    ids=str,
)
def test_what_cannot_work_is_one_sentence(tester: RunTester, data: dict[str, object], words: tuple[str, ...]) -> None:
    tester.run("train", tester.fake_run(data={"dataset": "raw.jsonl", **data}), "--dry-run").assert_refused(*words)
