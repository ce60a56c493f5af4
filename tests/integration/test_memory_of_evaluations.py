"""A long run does not keep the answers of all its evaluations in memory."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

from rlcore.config import plan_run
from rlcore.contracts.runtime_interface import TaskReport
from rlcore.registry.plugin_registry import Registry
from rlcore.runtime import Progress, run
from rlcore.testing import RunTester


class Counting(Progress):
    """Counts the reports that are in memory whenever an evaluation is shown."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def evaluated(self, step: int, reports: Sequence[TaskReport]) -> None:
        gc.collect()
        self.counts.append(sum(isinstance(item, TaskReport) for item in gc.get_objects()))


def test_only_the_first_and_the_newest_report_stay(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    evaluation = {"eval_dataset": {"held": str(tester.fake_data("held.jsonl"))}, "eval_interval": 1}
    config = tester.fake_run(run={"num_episodes": 20, "max_steps": 20, "run_dir": str(tmp_path / "runs")}, eval=evaluation)
    progress = Counting()
    with tester.plugins:
        summary = run(plan_run([Path(config)], {}, Registry.discover()), progress)
    assert len(progress.counts) == 21
    assert max(progress.counts) <= min(progress.counts) + 2
    assert summary.samples
