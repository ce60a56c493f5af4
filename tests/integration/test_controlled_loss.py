"""A controller that changes options of a loss which the loss compares with each other, and of which one is a pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcore.testing import RunTester

STEPS = 4
CODE = """
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator
from rlcore.api import Controller, Decision, Loss, Need


class Bounded(Loss):
    on_policy = False
    needs = frozenset({Need.OLD})

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
        low: float = 0.5
        high: float = 1.0
        pair: Annotated[tuple[float, float], Field(strict=False)] = (0.0, 1.0)

        @model_validator(mode="after")
        def ordered(self):
            if self.low >= self.high:
                raise ValueError("low must be below high")
            return self

    def __init__(self, options: Options):
        self.options = options

    def per_token(self, logprobs, batch):
        low, high = self.options.pair
        return -batch.advantages * (logprobs - batch.old_logprobs).exp() * self.options.high * (high - low)


class Rises(Controller):
    sets = ("algorithm.options.low", "algorithm.options.high", "algorithm.options.pair")

    def step_finished(self, step, figures):
        given = {"low": 1.0 + step, "high": 1.5 + step, "pair": (0.0, 1.0 + step)}
        return Decision(set={f"algorithm.options.{name}": value for name, value in given.items()})


class Crosses(Controller):
    sets = ("algorithm.options.low",)

    def step_finished(self, step, figures):
        return Decision(set={"algorithm.options.low": 2.0})
"""


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write("parts.py", CODE)
    return made


def a_run(tester: RunTester) -> str:
    return tester.fake_run(
        run={"num_episodes": 50, "max_steps": STEPS},
        training={"name": "fake-pipeline", "learning_rate": 0.4, "lr_schedule": "constant"},
        log={"save_interval": 1, "keep_checkpoints": 20},
    )


def words(controller: str) -> tuple[str, ...]:
    return ("--loss", "./parts.py:Bounded", "--controllers", f"./parts.py:{controller}")


def losses(folder: Path) -> list[float]:
    return [row["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines() if "loss" in (row := json.loads(line))]


def test_options_change_together_and_a_pair_is_one_after_a_resume(tester: RunTester) -> None:
    folder = tester.folder / tester.run("train", a_run(tester), *words("Rises"), "--json").assert_ok().json["run"]
    expected = losses(folder)
    for step in range(1, STEPS):
        (folder / "summary.json").unlink()
        tester.run("resume", str(folder), "--step", str(step)).assert_ok()
        assert losses(folder) == expected


def test_options_that_do_not_fit_each_other_are_refused(tester: RunTester) -> None:
    done = tester.run("train", a_run(tester), *words("Crosses"))
    assert done.exit_code == 1
    assert "parts.py set algorithm.options.low to 2.0; Value error, low must be below high" in done.stderr
