"""``rlcore compare`` of files that ``rlcore eval`` wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from rlcore_plugin_tools.runs.intervals import mean_interval

from rlcore.testing import RunTester
from tests.eval_rows import rows_of
from tests.written_runs import write_run


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> RunTester:
    """Two evaluations of two tasks that differ in seed and temperature: files of --out, and what --json printed."""
    tester = RunTester(tmp_path_factory.mktemp("evaluations"), in_process=True).with_fakes()
    tester.fake_run()
    tester.fake_data("held.jsonl", "abcd")
    tester.fake_data("more.jsonl", "ef")
    for name, words in {"a": (), "b": ("--seed", "1", "--eval-temperature", "0.9")}.items():
        typed = ("-d", "held.jsonl", "more.jsonl", "--eval-samples", "4", *words, "--out", f"{name}.jsonl", "--json")
        told = tester.run("eval", "model", "run.toml", *typed).assert_ok().json
        tester.write(f"{name}.json", json.dumps(told))
    return tester


def compared(tester: RunTester, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = tester.run("compare", *words, "--json").assert_ok().json
    return found


def of(found: Mapping[str, Any], metric: str) -> Mapping[str, Any]:
    (row,) = [row for row in found["evaluations"] if row["metric"] == metric]
    return row


def by_prompt(rows: Sequence[Mapping[str, Any]], task: str) -> list[float]:
    """The accuracy of each prompt."""
    prompts = sorted({row["prompt_index"] for row in rows if row["task"] == task})
    return [fmean(row["ans_valid"] for row in rows if (row["task"], row["prompt_index"]) == (task, number)) for number in prompts]


@pytest.mark.parametrize("kind", ["jsonl", "json"])
def test_figures_pairs_and_costs_by_task(kind: str, two: RunTester) -> None:
    found = compared(two, f"a.{kind}", f"b.{kind}")
    for task in ("held", "more"):
        first, second = (by_prompt(rows_of(two.folder / f"{name}.jsonl"), task) for name in "ab")
        row = of(found, f"eval/{task}")
        assert [figure["mean"] for figure in row["figures"]] == [fmean(first), fmean(second)]
        differences = [after - before for before, after in zip(first, second, strict=True)]
        differing = sum(one != 0 for one in differences)
        assert row["paired"] == [{**mean_interval(differences).as_json(), "differing": differing}]
        assert of(found, f"eval/{task}/failed")["figures"][0]["mean"] == 0.0
        assert of(found, f"eval/{task}/cost/calls")["figures"][1]["mean"] == 1.0
        assert of(found, f"eval/{task}/cost/calls")["paired"][0]["mean"] == 0.0
        tokens = fmean(row["cost"]["sampled_tokens"] for row in rows_of(two.folder / "a.jsonl") if row["task"] == task)
        assert of(found, f"eval/{task}/cost/sampled_tokens")["figures"][0]["mean"] == tokens
    assert of(found, "eval/held/cost/prompt_tokens")["paired"][0]["count"] == 4
    assert {item["name"]: item["values"] for item in found["settings"]} == {"run.seed": [0, 1], "eval.eval_temperature": [0.6, 0.9]}
    assert [[run["state"] for run in group["runs"]] for group in found["groups"]] == [["evaluation"]] * 2
    assert (found["versions"], found["data"], found["figures"]) == ([], [], [])


def test_in_words(two: RunTester) -> None:
    text = two.run("compare", "a.jsonl", "b.jsonl").assert_ok().stdout
    assert "eval.eval_temperature  0.6  0.9" in text
    assert "over 4 prompts" in text
    assert "eval/more/cost/seconds" in text
    assert "eval/more/pass@4" in text


def test_seeds_are_one_column(two: RunTester) -> None:
    for seed in ("2", "3"):
        typed = ("-d", "held.jsonl", "more.jsonl", "--eval-samples", "4", "--seed", seed, "--out", f"s{seed}.jsonl")
        two.run("eval", "model", "run.toml", *typed).assert_ok()
    found = compared(two, "b.jsonl", "a.jsonl", "s2.jsonl", "s3.jsonl")
    columns = [[Path(run["run"]).name for run in group["runs"]] for group in found["groups"]]
    assert columns == [
        ["b.jsonl"],
        ["a.jsonl", "s2.jsonl", "s3.jsonl"],
    ]
    assert of(found, "eval/held")["figures"][1]["over"] == "seeds"


def test_the_step_is_that_of_the_checkpoint_and_unknown_for_another_model(two: RunTester) -> None:
    trained = Path(two.run("train", "run.toml", "--json").assert_ok().json["checkpoint"])
    two.run("eval", str(trained), "run.toml", "-d", "held.jsonl", "--out", "c.jsonl").assert_ok()
    step = int(trained.name.removeprefix("step-"))
    assert [run["step"] for group in compared(two, "a.jsonl", "c.jsonl")["groups"] for run in group["runs"]] == [None, step]
    text = two.run("compare", "a.jsonl", "c.jsonl").assert_ok().stdout
    rows = [line.split() for line in text.splitlines() if "evaluation" in line.split()]
    assert [row[3] for row in rows] == ["–", str(step)]


def test_an_evaluation_beside_a_run(two: RunTester) -> None:
    """The run was last evaluated at step 2, the model of the evaluation was not trained."""
    answers = [{**row, "ans_valid": 1.0} for row in rows_of(two.folder / "a.jsonl") if row["task"] == "held"]
    metrics = [{"step": 2, "eval/held": 1.0}]
    write_run(two.folder / "run", settings={"eval": {"eval_dataset": {"held": "x"}}}, metrics=metrics, answers={"held": {2: answers}})
    found = compared(two, "a.jsonl", "run")
    row = of(found, "eval/held")
    assert (row["at"], [figure["steps"] for figure in row["figures"]]) == ("last", [[0], [2]])
    assert row["paired"][0]["mean"] == pytest.approx(1 - row["figures"][0]["mean"])


def test_rows_that_are_gone_give_no_pairs(two: RunTester) -> None:
    told = json.loads((two.folder / "a.json").read_text())
    two.write("alone.json", json.dumps({**told, "out": "gone.jsonl"}))
    two.write("none.json", json.dumps({**told, "out": None}))
    assert of(compared(two, "alone.json", "none.json"), "eval/held")["paired"] == [None]


def test_masked_answers_are_not_paired_and_their_cost_is(two: RunTester) -> None:
    rows = rows_of(two.folder / "a.jsonl")
    for row in rows:
        row["masked"] = row["prompt_index"] == 0
    two.write_jsonl("masked.jsonl", rows)
    two.write("masked.jsonl.eval.json", (two.folder / "a.jsonl.eval.json").read_text())
    found = compared(two, "masked.jsonl", "b.jsonl")
    assert of(found, "eval/held")["paired"][0]["count"] == of(found, "eval/held/reward")["paired"][0]["count"] == 3
    assert of(found, "eval/held/cost/calls")["paired"][0]["count"] == 4


def test_other_files_are_refused_or_left_out(two: RunTester) -> None:
    two.write("report.html", "<html>")
    two.run("compare", "a.jsonl", "report.html").assert_refused("report.html is neither a run folder nor a file that rlcore eval wrote")
    two.run("compare", "a.jsonl", "./a.jsonl").assert_refused("named twice")
    two.run("compare", "a.jsonl", "nowhere").assert_refused("nowhere is neither a run folder nor a project")
    two.write("bad.jsonl", "")
    two.write("bad.jsonl.eval.json", "{}")
    two.run("compare", "a.jsonl", "bad.jsonl").assert_refused("bad.jsonl.eval.json is damaged; evaluate again")
    two.write("bad.jsonl.eval.json", json.dumps({"tasks": {"held": 3}, "evaluation": {}, "out": None}))
    two.run("compare", "a.jsonl", "bad.jsonl").assert_refused("bad.jsonl is not what rlcore eval writes")
