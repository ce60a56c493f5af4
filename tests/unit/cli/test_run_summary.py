"""What is said at the end of a run."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rlcore.cli.run_summary import show_outcome
from rlcore.contracts.runtime_interface import TaskReport
from rlcore.runlog.best_checkpoint import BestFigure
from rlcore.runtime import Summary
from rlcore.runtime.progress import Sample, samples_of


def summary(**fields: Any) -> Summary:
    made: dict[str, Any] = {
        "run": Path("runs/x"),
        "steps": 4,
        "train_seconds": 2.0,
        "tokens_per_second": 100.0,
        "accuracy_before": None,
        "accuracy_after": None,
        "reward_last": None,
        "ledger": {"trained": 3},
        "time": {"trainer/training": 1.0},
        "peak_memory_bytes": 1,
        **fields,
    }
    return Summary(**made)


def shown(made: Summary, *, reports: bool = False) -> list[str]:
    out = io.StringIO()
    show_outcome(made, Console(file=out, width=40, color_system=None), reports=reports)
    return out.getvalue().splitlines()


SHARES = {"trainer_busy": 0.971, "producers_busy": 0.63, "bubble": 0.019, "producers/wasted": 0.0}


def test_one_line_says_where_the_time_went() -> None:
    assert "time                trainer busy 97 %, producers busy 63 %, bubble 2 %" in shown(summary(shares=SHARES))


def test_generation_for_nothing_is_named_where_there_was_some() -> None:
    lines = shown(summary(shares={**SHARES, "producers/wasted": 0.05}))
    assert "time                trainer busy 97 %, producers busy 63 % (5 % wasted), bubble 2 %" in lines


def test_a_run_that_trained_nothing_has_no_shares_to_show() -> None:
    assert not [line for line in shown(summary()) if line.startswith("time")]


def test_the_json_holds_the_shares() -> None:
    assert json.loads(json.dumps(summary(shares=SHARES).as_json()))["shares"] == SHARES


@pytest.mark.parametrize("name", ["x", "my runs/it's $HOME", "a;b", "é #1", "-x"])
def test_the_commands_to_type_next_survive_the_shell(name: str) -> None:
    run = Path("runs") / name
    made = summary(run=run, checkpoint=run / "checkpoints/step-4", train_on="--max-steps 8")
    commands = [line for line in shown(made) if line.startswith("  rlcore ")]
    words = [
        ["rlcore", "resume", f"{run}", "--max-steps", "8"],
        ["rlcore", "show", "config", f"{run}/run.toml"],
    ]
    assert [shlex.split(command, comments=True) for command in commands] == words
    assert [command.partition("    #")[0].strip() for command in commands] == list(map(shlex.join, words))


def best(tmp_path: Path, step: int, *, kept: bool = False) -> list[str]:
    checkpoints = tmp_path / "checkpoints"
    (checkpoints / f"step-{step if kept else 'none'}" / "model").mkdir(parents=True)
    made = summary(best=BestFigure("accuracy", 0.75, step), checkpoint=checkpoints / "step-4")
    return [line for line in shown(made) if line.startswith("best")]


def test_the_best_evaluation_is_named_with_its_step_and_its_model(tmp_path: Path) -> None:
    assert best(tmp_path / "a", 4) == ["best evaluation     0.750 after 4 updates"]
    assert best(tmp_path / "b", 0) == ["best evaluation     0.750 before the first update"]
    assert best(tmp_path / "c", 2) == ["best evaluation     0.750 after 2 updates, but its checkpoint is not kept"]
    assert best(tmp_path / "d", 2, kept=True) == [f"best evaluation     0.750 after 2 updates: {tmp_path}/d/checkpoints/step-2/model"]
    assert not [line for line in shown(summary()) if line.startswith("best")]


def test_the_report_is_advised_where_there_is_such_a_command() -> None:
    made = summary(checkpoint=Path("runs/x/checkpoints/step-4"))
    commands = [[line.split()[1] for line in shown(made, reports=reports) if line.startswith("  rlcore ")] for reports in (False, True)]
    assert commands == [["resume", "show"], ["report", "resume", "show"]]
    assert "  rlcore report runs/x    # learning curves, evaluations and answers in one HTML file" in shown(summary(), reports=True)


def test_what_a_model_wrote_does_not_steer_the_terminal() -> None:
    hostile = "a\x1b]0;owned\x07\x9b2J\u202eb\r\nc"
    sample = Sample(prompt=hostile, gold=hostile, before=hostile, after=hostile)
    lines = shown(summary(samples=(sample,), remarks=(hostile,), switched_off={hostile: hostile}, run=Path(hostile)))
    assert all(line.isprintable() for line in lines)
    assert r"  after    a\x1b]0;owned\x07\x9b2J\u202eb\x0d⏎c" in lines


def test_the_last_of_several_answers_is_not_shown_as_the_answer_to_the_prompt() -> None:
    def report(text: str, answers: int) -> TaskReport:
        turns = [{"role": role, "content": text, "policy": role == "assistant"} for role in ("assistant", "user")] * answers
        row = {"index": 0, "prompt": [{"role": "user", "content": "sort 3 1"}], "gold": "1 3", "ans_valid": 0.0, "prediction": text}
        return TaskReport(task="sort", accuracy=0.0, reward=0.0, rows=({**row, "turns": turns},))

    lines = shown(summary(samples=samples_of([report("3 1", 1)], [report("1 3", 2)])))
    assert "  before   3 1" in lines
    assert "  after    (the last of 2 answers) 1 3" in lines
