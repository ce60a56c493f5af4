"""``rlcore eval RUN``: the numbers and the rows of the run's own evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import RunTester
from tests.eval_rows import answers_of, tasks_of


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_checkpoint_has_the_figures_and_rows_of_its_run(step: int, trained: tuple[RunTester, RunRecord]) -> None:
    tester, record = trained
    done = tester.run("eval", str(record.root), "--step", str(step), "--out", f"step-{step}.jsonl", "--json").assert_ok()
    (logged,) = [row for row in record.evaluations() if row["step"] == step]
    assert {"step": step, **tasks_of(done.json)["letters"]["figures"]} == logged
    assert "eval/letters/pass@2/low" in logged, "two samples a prompt"
    expected = [{"task": "letters", **row} for row in record.evaluation_rows("letters", step)]
    assert answers_of(tester.folder / f"step-{step}.jsonl") == expected
    assert len(expected) == tasks_of(done.json)["letters"]["completions"] == 8


def test_another_seed_draws_otherwise(trained: tuple[RunTester, RunRecord]) -> None:
    tester, record = trained
    tester.run("eval", str(record.root), "--step", "1", "--seed", "7", "--out", "rows.jsonl").assert_ok()
    predictions = [row["prediction"] for row in answers_of(tester.folder / "rows.jsonl")]
    assert predictions != [row["prediction"] for row in record.evaluation_rows("letters", 1)]


def test_the_newest_and_the_best_checkpoint(trained: tuple[RunTester, RunRecord]) -> None:
    tester, record = trained
    newest = tester.run("eval", str(record.root), "--dry-run", "--json").assert_ok().json
    assert (newest["step"], newest["model"]) == (3, str(record.checkpoints / "step-3" / "model"))
    best = tester.run("eval", str(record.root), "--best", "--dry-run", "--json").assert_ok().json
    accuracies = {row["step"]: row["eval/letters"] for row in record.evaluations()}
    assert accuracies[best["step"]] == max(accuracies.values())


def test_the_best_step_without_a_checkpoint_is_refused(trained: tuple[RunTester, RunRecord]) -> None:
    tester, record = trained
    log = record.root / "metrics.jsonl"
    known = log.read_text()
    log.write_text(known + json.dumps({"step": 9, "eval/letters": 2.0}) + "\n")
    try:
        for command in ("eval", "resume"):
            tester.run(command, str(record.root), "--best", *(("--max-steps", "9") if command == "resume" else ())).assert_refused(
                f"--best: the best step of {record.root} is 9 (accuracy 2), and it has no checkpoint; there are checkpoints of steps "
                "1, 2, 3: type --step N, and for the next run --keep-best"
            )
    finally:
        log.write_text(known)


def test_a_run_evaluates_other_tasks_if_they_are_typed(trained: tuple[RunTester, RunRecord]) -> None:
    tester, record = trained
    tester.fake_data("other/held.jsonl", "ef")
    typed = ("-d", "held.jsonl", "other/held.jsonl", "-ed", '{"held-2": "held.jsonl"}', "--dry-run", "--json")
    tasks = tester.run("eval", str(record.root), *typed).assert_ok().json["tasks"]
    assert tasks == {"held-2": "held.jsonl", "held": "held.jsonl", "held-3": "other/held.jsonl"}


def test_a_damaged_checkpoint_is_refused(trained: tuple[RunTester, RunRecord]) -> None:
    tester, record = trained
    (weights,) = (record.checkpoints / "step-2" / "model").glob("*.npz")
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    try:
        tester.run("eval", str(record.root), "--step", "2").assert_refused("step-2", "it is damaged")
    finally:
        weights.write_bytes(whole)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--step", "9"), "it has checkpoints of steps 1, 2, 3"),
        (("--step", "x"), "must be a whole number"),
        (("--step", "1", "--best"), "leave one out"),
        (("-lr", "1"), "is not an option of rlcore eval"),
    ],
)
def test_what_a_run_has_not_is_refused(words: tuple[str, ...], said: str, trained: tuple[RunTester, RunRecord]) -> None:
    tester, record = trained
    tester.run("eval", str(record.root), *words).assert_refused(said)


def test_flags_of_the_plugins_that_a_typed_file_chooses_are_known_beside_a_run(trained: tuple[RunTester, RunRecord]) -> None:
    tester, record = trained
    tester.write("play.py", "async def play(model, row):\n    return 1.0\n")
    tester.write("episodes.toml", '[sampling]\nenvironment = "./play.py:play"\nconversation = "agent"\n')
    words = ("eval", str(record.root), "episodes.toml", "--workers", "2", "--dry-run")
    tester.run(*words).assert_ok()
    tester.run("eval", str(record.root), "--workers", "2", "--dry-run").assert_refused("--workers is not an option of rlcore eval")


@pytest.mark.parametrize("before", [("--eval-samples", "1"), ("--system-prompt", "long " * 1000), ("--workers", "2")])
def test_flags_of_the_plugins_of_a_run_are_known_wherever_the_run_is_typed(
    before: tuple[str, ...], trained: tuple[RunTester, RunRecord], tmp_path: Path
) -> None:
    tester, record = trained
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    typed = (record.root / "run.toml").read_text()
    for name, other in {
        'conversation = "single_turn"': 'conversation = "agent"',
        'environment = "none"': 'environment = "./play.py:play"',
    }.items():
        assert name in typed
        typed = typed.replace(name, other)
    (run / "run.toml").write_text(typed)
    (run / "play.py").write_text("async def play(model, row):\n    return 1.0\n")
    tester.run("eval", *before, str(run), "--step", "0", "--workers", "2", "--dry-run").assert_ok()
