"""Corrections for data of another policy in whole runs of the real engine and the real trainer: fresh and stale data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rlcore
from tests.quickstart_folder import quickstart_in

pytestmark = pytest.mark.full

NIGHTLY = ("truncated", "masked", "sequence_truncated")
CORRECTIONS = ["decoupled", "sequence_masked", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in NIGHTLY)]


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quickstart_in(tmp_path_factory.mktemp("project") / "qs", tmp_path_factory)


def steps_of(folder: Path, **overrides: Any) -> list[dict[str, float]]:
    paths = {"run_dir": str(folder / "runs"), "model": str(folder / "base"), "dataset": str(folder / "train.jsonl")}
    values = {"max_steps": 4, "train_batch_size": 8, "eval_dataset": {}, "eval_interval": 0, "warmup_steps": 0, "rollout_interval": 0}
    values["max_staleness"] = 0
    summary = rlcore.train(folder / "run.toml", **{**values, **paths, **overrides})
    return [json.loads(line) for line in (summary.run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", CORRECTIONS)
def test_stale_data_are_weighed_and_fresh_data_have_weight_one(quickstart: Path, kind: str) -> None:
    steps = steps_of(quickstart, mismatch_correction=kind, max_staleness=2, updates_per_batch=2)
    assert len(steps) == 4
    fresh = [step for step in steps if step["staleness/max"] == 0]
    stale = [step for step in steps if step["staleness/max"] > 0]
    assert fresh and stale  # noqa: PT018 - without both the test shows nothing
    assert all(step["mismatch_weight"] == pytest.approx(1.0, abs=1e-3) and step["mismatch_cut"] == 0.0 for step in fresh)
    assert any(abs(step["mismatch_weight"] - 1.0) > 1e-3 for step in stale)


def test_without_a_correction_nothing_is_weighed(quickstart: Path) -> None:
    assert all("mismatch_weight" not in step for step in steps_of(quickstart, max_staleness=2))
