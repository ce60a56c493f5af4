"""What a trainer does otherwise than its settings ask is told on the standard error of the run, without a setting for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.letters_model import write_model

WARNINGS = ("cannot be packed (attention = 'eager'", "so layers are recomputed, as with 'recompute'")


@pytest.mark.parametrize("runtime", ["in_process", pytest.param("local", marks=pytest.mark.full)])
def test_forwards_that_are_padded_and_activations_that_stay_are_told_once(runtime: str, tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()  # in a process of its own: pytest takes what is logged in this one
    write_model(tmp_path / "tiny")
    training = {"name": "torch", "options": {"attention": "eager", "activations": "offload"}}
    trainers = {"num_trainers": 2} if runtime == "local" else {}
    made = tester.run(
        "train",
        tester.fake_run(
            run={"max_steps": 1, "runtime": runtime},
            model={"model": str(tmp_path / "tiny")},
            inference={"name": "transformers"},
            training={**training, **trainers},
        ),
    ).assert_ok()
    for said in WARNINGS:
        (line,) = [line for line in made.stderr.splitlines() if said in line]
        assert "warning: " in line
