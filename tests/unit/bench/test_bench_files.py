"""A run of 10 000 steps with the rows of a 7B model does not fill a disk: every file stays below what the documentation states."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.files import Shape, drive, left, rows_of, table
from rlcore.runlog import RunFolder
from rlcore.testing import RunTester

LINE = 10_000
"""Bytes of the longest line of a log."""


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_ten_thousand_steps_of_a_large_run_stay_within_their_bounds(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    config = tester.fake_run(
        run={"max_steps": 2}, log={"rollout_interval": 1}, eval={"eval_dataset": {"held": "train.jsonl"}, "eval_interval": 1}
    )
    rows = rows_of(tmp_path / tester.run("train", config, "--json").assert_ok().json["run"])
    shape = Shape(rollout_interval=1000, eval_interval=2000, workers=4, failures=3, max_mb=10.0)
    made = RunFolder.create(tmp_path, "long", save_dir=None, eval_save_dir=None, rollout_save_dir=None)
    a_step = drive(made, shape, rows)
    found = left(made)
    assert found["metrics.jsonl"] <= 3_000 * shape.steps
    assert found["times.jsonl"] <= 300 * shape.workers * shape.steps
    for name in ("failures.jsonl", "reward_errors.jsonl"):
        assert 4 << 20 <= found[name] <= (4 << 20) + 2 * LINE
    for name in ("rollouts/step-N.jsonl.gz", "eval/TASK/step-N.jsonl"):
        assert 10e6 - a_step[name] <= found[name] <= 10e6
    assert sum(path.stat().st_size for path in made.root.rglob("*") if path.is_file()) == sum(found.values())
    steps = sorted(int(path.name.removeprefix("step-").partition(".")[0]) for path in made.rollouts.iterdir())
    assert (steps[0], steps[-1]) == (1, 10_000)
    assert table(shape, a_step, found).count("\n") == 1 + len(a_step)
