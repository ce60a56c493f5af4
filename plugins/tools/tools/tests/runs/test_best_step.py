"""Which of the checkpoints that a run left is the best, read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.api import UsageError

ROWS = [
    {"step": 0, "eval/a": 0.1, "eval/b": 0.1, "eval/c": 0.9},
    {"step": 1, "seconds": 1.0, "reward/mean": 3.0},
    {"step": 1, "eval/a": 0.2, "eval/b": 0.4},
    {"step": 2, "seconds": 1.0, "reward/mean": 1.0},
    {"step": 2, "eval/a": 0.9, "eval/b": 0.3, "eval/c": 0.2, "eval/d": 0.7},
    {"step": 3, "seconds": 1.0, "reward/mean": 2.0},
    {"step": 3, "eval/a": 0.1, "eval/b": 0.9},
    {"step": 4, "eval/a": 1.0, "eval/b": 1.0, "eval/d": 0.7},
]


@pytest.mark.parametrize(
    ("by", "best"),
    [
        ("reward/mean", 1),
        ("min:reward/mean", 2),
        ("eval/c", 0),
        ("eval/d", 2),
        (None, "the best step of {run} is 4 (accuracy 1), and it has no checkpoint; there are checkpoints of steps 1, 2, 3"),
        ("eval/b", "the best step of {run} is 4 (eval/b 1), and it has no checkpoint"),
        ("eval/e", "{run} has no eval/e by which to choose; there are checkpoints of steps 1, 2, 3: type --step N"),
    ],
)
def test_the_best_step_has_a_checkpoint_or_is_refused(by: str | None, best: int | str, tmp_path: Path) -> None:
    """Step 4 has no checkpoint. By ``eval/d`` it is as good as step 2, which has one. Step 0 is the model that the run began with."""
    log = f'[log]\nbest_by = "{by}"\n' if by else ""
    (tmp_path / "run.toml").write_text(f'{log}[eval.eval_dataset]\na = "a.jsonl"\nb = "b.jsonl"\n')
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for step in (1, 2, 3):
        (tmp_path / "checkpoints" / f"step-{step}").mkdir(parents=True)
    record = RunRecord(tmp_path)
    assert record.checkpoint_steps() == [1, 2, 3]
    if isinstance(best, int):
        assert record.best_step() == best
        return
    with pytest.raises(UsageError) as refused:
        record.best_step()
    assert best.format(run=tmp_path) in str(refused.value)
