"""The real engine and the real trainer: one seed gives one result, to the bit, and the cut of the work does not matter beyond rounding.

Rounding, stated: the trainer sums micro-batches in float32, so weights after a few updates differ by a few 1e-6 between cuts of the
training batch. The cut of the inference batch can only matter where rounding (about 1e-6) changes a drawn token; where no token changed,
the weights are equal to the bit, because on-policy the trainer's own log probabilities are the old ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import rlcore
from rlcore.runtime import Summary
from tests.quickstart_folder import quickstart_in

STEPS = 4


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = quickstart_in(tmp_path_factory.mktemp("project") / "qs", tmp_path_factory)
    rows = (folder / "train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "few.jsonl").write_text("".join(rows[:512]), encoding="utf-8")  # each run reads and tokenizes all that it is given
    return folder


def train(folder: Path, **overrides: Any) -> Summary:
    paths = {"run_dir": str(folder / "runs"), "model": str(folder / "base"), "dataset": str(folder / "few.jsonl")}
    values = {"max_steps": STEPS, "eval_dataset": {}, "eval_interval": 0, "max_staleness": 0, **paths, **overrides}
    return rlcore.train(folder / "run.toml", **values)


def weights(summary: Summary) -> dict[str, np.ndarray]:
    assert summary.checkpoint is not None
    return load_file(summary.checkpoint / "model" / "model.safetensors")


def texts(summary: Summary) -> bytes:
    return (summary.run / "rollouts" / f"step-{STEPS}.jsonl.gz").read_bytes()


def largest_gap(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


@pytest.fixture(scope="module")
def first(quickstart: Path) -> Summary:
    return train(quickstart, rollout_interval=STEPS)


def test_two_runs_with_one_seed_are_equal_to_the_bit(quickstart: Path, first: Summary) -> None:
    again = train(quickstart, rollout_interval=STEPS)
    assert largest_gap(weights(first), weights(again)) == 0.0
    assert texts(first) == texts(again)


def test_another_seed_gives_another_result(quickstart: Path, first: Summary) -> None:
    assert largest_gap(weights(first), weights(train(quickstart, seed=1))) > 1e-4


@pytest.mark.parametrize("prompts", [pytest.param(4, marks=pytest.mark.nightly), 11])
def test_the_cut_of_the_inference_batch_does_not_matter(quickstart: Path, first: Summary, prompts: int) -> None:
    other = train(quickstart, inference_microbatch_size=prompts, rollout_interval=STEPS)
    assert texts(first) == texts(other)
    assert largest_gap(weights(first), weights(other)) == 0.0


@pytest.mark.parametrize("rollouts", [pytest.param(8, marks=pytest.mark.nightly), 24, 256])
def test_the_cut_of_the_training_batch_matters_only_up_to_rounding(quickstart: Path, first: Summary, rollouts: int) -> None:
    other = train(quickstart, train_microbatch_size=rollouts)
    assert largest_gap(weights(first), weights(other)) < 2e-5


@pytest.mark.nightly  # staleness 1 learns in CI: `make quickstart`
def test_staleness_two_learns_too(quickstart: Path) -> None:
    held_out = {"sort": str(quickstart / "heldout.jsonl")}
    summary = train(quickstart, max_steps=100, max_staleness=2, eval_dataset=held_out, dataset=str(quickstart / "train.jsonl"))
    assert summary.accuracy_before is not None
    assert summary.accuracy_after is not None
    assert summary.accuracy_after >= 0.9 > summary.accuracy_before
