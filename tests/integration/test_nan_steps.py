"""A loss whose gradient is not a number for some steps: they are skipped and counted; too many in a row end the run, and a resume counts
on. A loss that is none itself ends the run at once, and is named."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore.contracts.batches import LossBatch
from rlcore.roles.consumer import Consumer
from rlcore.runlog.past_runs import past_runs
from rlcore.testing import RunOutcome, RunTester
from rlcore.testing.algorithms.fake_algorithms import FakeLoss
from tests.letters_model import write_model


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    """Real backends, a checkpoint a step."""
    write_model(tmp_path / "tiny")
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.fake_run(
        run={"num_episodes": 20, "max_steps": 8},
        log={"save_interval": 1, "keep_checkpoints": 20},
        inference={"name": "transformers"},
        training={"name": "torch", "max_skipped_steps": 3},
        model={"model": "tiny"},
    )
    return tester


def spoil(monkeypatch: pytest.MonkeyPatch, steps: Collection[int], value: float = 0.0) -> None:
    """The gradient of the loss of these updates is not a number; the loss has ``value`` added."""
    update, per_token, now = Consumer.update, FakeLoss.per_token, [0]

    def updated(self: Consumer, groups: Any, masked: Any, version: int, shares: Any = None) -> Any:
        now[0] = version + 1
        return update(self, groups, masked, version, shares)

    def spoilt(self: FakeLoss, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        root = (logprobs - logprobs.detach()).abs().sqrt()  # of 0, where it has no slope
        return per_token(self, logprobs, batch) + (root + value if now[0] in steps else 0.0)

    monkeypatch.setattr(Consumer, "update", updated)
    monkeypatch.setattr(FakeLoss, "per_token", spoilt)


def skipped(run: Path) -> Sequence[float]:
    return [json.loads(line)["skipped_steps"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def weights(run: Path, step: int) -> bytes:
    return (run / "checkpoints" / f"step-{step}" / "model" / "model.safetensors").read_bytes()


def sentence_of(done: RunOutcome) -> str:
    assert done.exit_code == 1, done
    assert "Traceback" not in done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return sentence


def test_some_are_skipped_and_counted_and_leave_the_weights_alone(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, {2, 3, 4, 6})
    done = tester.run("train", "run.toml", "--json").assert_ok()
    run = tester.folder / done.json["run"]
    assert skipped(run) == [0, 1, 1, 1, 0, 1, 0, 0]
    assert weights(run, 1) == weights(run, 4) != weights(run, 5)
    assert weights(run, 5) == weights(run, 6) != weights(run, 7)


def test_too_many_in_a_row_end_the_run_and_a_resume_counts_on(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        spoil(patched, range(3, 9))
        sentence = sentence_of(tester.run("train", "run.toml"))
    (run,) = [found.root for found in past_runs(tester.folder / "runs" / "rlcore")]
    assert skipped(run) == [0, 0, 1, 1, 1]
    assert "4 optimizer steps in a row, up to the update of version 5, were skipped" in sentence
    assert "training.max_skipped_steps is 3" in sentence
    assert sentence.endswith("checkpoints/step-5")
    with monkeypatch.context() as patched:
        spoil(patched, {6})
        assert "4 optimizer steps in a row" in sentence_of(tester.run("resume", str(run)))
    tester.run("resume", str(run)).assert_ok()  # what was wrong is mended
    assert skipped(run) == [0, 0, 1, 1, 1, 0, 0, 0]


def test_a_loss_that_is_not_a_number_itself_is_named_at_once(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, {3}, value=float("nan"))
    sentence = sentence_of(tester.run("train", "run.toml"))
    assert "loss 'fake' returned nan" in sentence
    assert sentence.endswith("checkpoints/step-2")
