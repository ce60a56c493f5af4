"""A run that goes on: at staleness 0 it is the run that was never interrupted, to the bit; else every prompt is trained exactly once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlcore.contracts.resume_point import ResumePoint
from rlcore.entry import make_plan
from rlcore.runtime import Progress, Summary
from rlcore.runtime import run as run_plan
from rlcore.testing import RunTester

_MEASURED = ("time/", "seconds", "latency")
STEPS = 6


class Notes(Progress):
    """Keeps what a person would have read."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def project(folder: Path, **sections: Mapping[str, Any]) -> tuple[RunTester, str]:
    """Six updates of 3 prompts, with a held-out task every second step and a checkpoint after each."""
    tester = RunTester(folder).with_fakes()
    held_out = {"letters": str(tester.fake_data("held.jsonl", "abcd"))}
    defaults: dict[str, Mapping[str, Any]] = {
        "run": {"num_episodes": 8, "max_steps": STEPS, "run_dir": str(folder / "runs")},
        "log": {"save_interval": 1, "rollout_interval": 1},
        "eval": {"eval_dataset": held_out, "eval_interval": 2},
    }
    return tester, tester.fake_run(**{name: {**defaults.get(name, {}), **sections.get(name, {})} for name in defaults | sections})


def train(tester: RunTester, config: str, at: ResumePoint | None = None, told: Notes | None = None, **overrides: Any) -> Summary:
    with chdir(tester.folder), tester.plugins:
        return run_plan(replace(make_plan(config, **overrides), resume=at), told)


def cut(run: Path, into: Path, step: int) -> ResumePoint:
    """The folder as a run leaves it that is killed right after the checkpoint of ``step``: rows of later steps are cut off."""
    shutil.copytree(run, into)
    for later in into.glob("*/step-*"):
        if int(later.stem.split("-")[1]) > step:
            shutil.rmtree(later) if later.is_dir() else later.unlink()
    log = into / "metrics.jsonl"
    rows = [line for line in log.read_text().splitlines() if json.loads(line)["step"] <= step]
    log.write_text("".join(f"{row}\n" for row in rows))
    checkpoint = into / "checkpoints" / f"step-{step}"
    return ResumePoint(run=into, checkpoint=checkpoint, step=step, state=json.loads((checkpoint / "state.json").read_text()))


def metrics_of(run: Path) -> list[dict[str, Any]]:
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in row.items() if not any(part in name for part in _MEASURED)} for row in rows]


def files_of(run: Path, pattern: str) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.glob(pattern)) if path.is_file()}


def assert_equal_runs(one: Summary, other: Summary) -> None:
    """All that they wrote, but for seconds; and what their summaries say of the whole run."""
    assert metrics_of(one.run) == metrics_of(other.run)
    for pattern in ("rollouts/*", "eval/*/*", "checkpoints/step-6/model/*", "checkpoints/step-6/trainer/*.npz", "checkpoints/*/state.json"):
        assert files_of(one.run, pattern) == files_of(other.run, pattern), pattern
    assert files_of(one.run, "checkpoints/step-6/model/*")
    for figure in ("steps", "accuracy_before", "accuracy_after", "reward_last", "ledger", "filter"):
        assert getattr(one, figure) == getattr(other, figure), figure


def test_from_every_step_it_is_the_run_that_was_not_interrupted(tmp_path: Path) -> None:
    """A filter that replaces groups, a schedule of learning rate and temperature: all of it has memory."""
    tester, config = project(
        tmp_path,
        sampling={"temperature_end": 0.7},
        training={"warmup_steps": 2, "min_lr_ratio": 0.1},
        algorithm={"filter_range": [0.01, 0.99], "dynamic_batching": True},
    )
    whole = train(tester, config)
    assert whole.steps == STEPS
    assert whole.filter["filtered"] > 0
    for step in range(1, STEPS + 1):
        again = train(tester, config, cut(whole.run, tmp_path / f"from-{step}", step))
        assert_equal_runs(again, whole)
