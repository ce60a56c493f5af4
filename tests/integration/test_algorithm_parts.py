"""Whole runs of fakes whose estimator reads and keeps what a plain one does not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from rlcore.testing import RunTester


def trained(folder: Path, *words: str) -> tuple[Path, list[dict[str, float]]]:
    tester = RunTester(folder, in_process=True).with_fakes()
    outcome = tester.run("train", tester.fake_run(), *words, "--json").assert_ok()
    run = tester.folder / outcome.json["run"]
    return run, [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_token_rewards_of_a_reward_reach_an_estimator_that_reads_them(tmp_path: Path) -> None:
    _, plain = trained(tmp_path / "plain", "--estimator", "fake_credit")
    run, judged = trained(tmp_path / "judged", "--estimator", "fake_credit", "-rt", "fake_tokens")
    assert judged != plain
    assert not list(run.glob("checkpoints/*/trainer/estimator.npz"))


def test_the_state_of_an_estimator_is_in_the_checkpoint(tmp_path: Path) -> None:
    run, _ = trained(tmp_path, "--estimator", "fake_baseline", "-si", "1")
    states = [dict(np.load(path)) for path in sorted(run.glob("checkpoints/step-*/trainer/estimator.npz"))]
    assert len(states) == 3
    assert sorted(states[-1]) == ["means", "prompts"]
    assert len(states[0]["prompts"]) == 3
    assert len(set(states[-1]["prompts"].tolist())) == len(states[-1]["means"]) == 6
