"""Which of the checkpoints that a run left is the best, read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlcore_plugin_tools.run_record import RunRecord

ROWS = [
    {"step": 1, "seconds": 1.0, "reward/mean": 3.0},
    {"step": 1, "eval/a": 0.2, "eval/b": 0.4},
    {"step": 2, "seconds": 1.0, "reward/mean": 1.0},
    {"step": 2, "eval/a": 0.9, "eval/b": 0.3},
    {"step": 3, "seconds": 1.0, "reward/mean": 2.0},
    {"step": 3, "eval/a": 0.1, "eval/b": 0.9},
    {"step": 4, "eval/a": 1.0, "eval/b": 1.0},
]


@pytest.mark.parametrize(
    ("by", "best"),
    [(None, 2), ("accuracy", 2), ("eval/b", 3), ("reward/mean", 1), ("min:reward/mean", 2), ("eval/c", None)],
)
def test_the_best_of_the_checkpoints_that_are_there(by: str | None, best: int | None, tmp_path: Path) -> None:
    """Step 4 is better, and its checkpoint is gone."""
    log = f'[log]\nbest_by = "{by}"\n' if by else ""
    (tmp_path / "run.toml").write_text(f'{log}[eval.eval_dataset]\na = "a.jsonl"\nb = "b.jsonl"\n')
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for step in (1, 2, 3):
        (tmp_path / "checkpoints" / f"step-{step}").mkdir(parents=True)
    record = RunRecord(tmp_path)
    assert record.checkpoint_steps() == [1, 2, 3]
    assert record.best_step() == best
