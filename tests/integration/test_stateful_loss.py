"""A loss that changes with the figures of the run: the example of docs/authors/algorithms.md, resumed and under the kit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from rlcore.api import Loss
from rlcore.testing import LossSuite, RunTester

PAGE = Path(__file__).parents[2] / "docs" / "authors" / "algorithms.md"
SOURCE = re.search(r"```python\n(?P<code>(?:(?!```).)*?class AdaptiveKl.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
assert SOURCE is not None
CODE = SOURCE["code"]


class TestAdaptiveKl(LossSuite):
    def make(self) -> Loss:
        module = ModuleType("adaptive")
        exec(compile(CODE, "adaptive.py", "exec"), vars(module))
        made: Loss = module.AdaptiveKl()
        return made


def steps(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "loss" in row]


def beta(run: Path, step: int) -> float:
    return float(np.load(run / f"checkpoints/step-{step}/trainer/loss.npz")["beta"])


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write("adaptive.py", CODE)
    return made


def a_run(tester: RunTester, **run: int) -> str:
    return tester.fake_run(
        run={"num_episodes": 50, **run},
        training={"name": "fake-pipeline", "learning_rate": 0.4, "lr_schedule": "constant"},
        sampling={"max_new_tokens": 4, "num_generations": 4},
        log={"save_interval": 1, "keep_checkpoints": 20},
    )


def trained(tester: RunTester, *words: str) -> Path:
    return tester.folder / tester.run("train", *words, "--loss", "./adaptive.py:AdaptiveKl", "--json").assert_ok().json["run"]


def test_a_resumed_run_goes_on_with_its_state(tester: RunTester) -> None:
    straight = trained(tester, a_run(tester, max_steps=6))
    broken = trained(tester, a_run(tester, max_steps=3))
    tester.run("resume", str(broken), "--max-steps", "6").assert_ok()
    states = [[beta(run, step) for step in range(1, 7)] for run in (straight, broken)]
    assert states[0] == states[1]
    assert len(set(states[0])) > 2, "the coefficient moves"
    assert [row["loss"] for row in steps(straight)] == [row["loss"] for row in steps(broken)]
    weights = [(run / "checkpoints/step-6/model/fake_policy.npz").read_bytes() for run in (straight, broken)]
    assert weights[0] == weights[1]


def test_another_loss_starts_without_that_state(tester: RunTester) -> None:
    run = trained(tester, a_run(tester, max_steps=2))
    told = tester.run("resume", str(run), "--max-steps", "3", "--loss", "clipped").assert_ok()
    assert "has a state of AdaptiveKl, and loss 'clipped' starts without one" in told.stdout + told.stderr
    assert not (run / "checkpoints/step-3/trainer/loss.npz").exists()


def test_an_error_of_it_ends_the_run(tester: RunTester) -> None:
    tester.write("adaptive.py", CODE + '\n    def updated(self, figures):\n        raise ValueError("too far")\n')
    done = tester.run("train", a_run(tester, max_steps=3), "--loss", "./adaptive.py:AdaptiveKl")
    assert done.exit_code == 1
    assert "adaptive.py:AdaptiveKl" in done.stderr
    assert "observing an update" in done.stderr
    assert "too far" in done.stderr
