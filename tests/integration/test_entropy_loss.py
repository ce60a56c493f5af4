"""A loss that trains the tokens of high entropy: the example of docs/authors/algorithms.md, in runs, under the kit, and refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from rlcore.api import Loss
from rlcore.testing import LossSuite, RunTester

PAGE = Path(__file__).parents[2] / "docs" / "authors" / "algorithms.md"
SOURCE = re.search(r"```python\n(?P<code>(?:(?!```).)*?class HighEntropy.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
assert SOURCE is not None
CODE = SOURCE["code"]


class TestHighEntropy(LossSuite):
    follows_advantage = False  # four fifths of the tokens have no gradient

    def make(self) -> Loss:
        module = ModuleType("uncertain")
        exec(compile(CODE, "uncertain.py", "exec", dont_inherit=True), vars(module))
        made: Loss = module.HighEntropy()
        return made


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write("rewards.py", "def letters(item):\n    return float(sum(map(ord, item.text)))\n")
    made.write("uncertain.py", CODE)
    made.write("all.py", CODE.replace("share = 0.2", "share = 1.0"))
    return made


def a_run(tester: RunTester, trainer: str = "fake-pipeline", **algorithm: int) -> str:
    return tester.fake_run(
        run={"num_episodes": 50, "max_steps": 3},
        training={"name": trainer, "learning_rate": 0.4, "train_batch_size": 4},
        sampling={"max_new_tokens": 4, "num_generations": 4},
        algorithm=algorithm,
    )


def steps(tester: RunTester, *words: str) -> list[dict[str, float]]:
    done = tester.run("train", *words, "-rt", "./rewards.py:letters", "--json").assert_ok()
    rows = [json.loads(line) for line in (tester.folder / done.json["run"] / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "loss" in row]


@pytest.mark.parametrize("updates", [1, 2])
def test_a_fifth_of_the_tokens_of_the_batch_trains(tester: RunTester, updates: int) -> None:
    rows = steps(tester, a_run(tester, updates_per_batch=updates), "--loss", "./uncertain.py:HighEntropy")
    assert len(rows) == 3
    for row in rows:
        assert 0.2 <= row["loss/high_entropy"] < 0.6, "ties of the quantile train as well"
    every = steps(tester, a_run(tester, updates_per_batch=updates), "--loss", "./all.py:HighEntropy")
    plain = steps(tester, a_run(tester, updates_per_batch=updates), "--loss", "clipped")
    assert [row["loss/high_entropy"] for row in every] == [1.0] * 3
    assert [row["loss"] for row in every] == pytest.approx([row["loss"] for row in plain], abs=1e-6)
    assert rows[0]["grad_norm"] < plain[0]["grad_norm"]


def test_a_trainer_without_entropies_is_refused_at_the_dry_run(tester: RunTester) -> None:
    refused = tester.run("train", a_run(tester, "fake"), "--loss", "./uncertain.py:HighEntropy", "--dry-run")
    refused.assert_refused("needs the entropy of each token before the update", "training backend fake does not compute it", "--trainer")


def test_a_loss_that_does_not_declare_it_is_told(tester: RunTester) -> None:
    tester.write("silent.py", CODE.replace("prepares_entropy = True", "share = 0.2"))
    done = tester.run("train", a_run(tester), "--loss", "./silent.py:HighEntropy")
    assert done.exit_code == 1
    assert "entropy in prepare by prepares_entropy = True" in done.stderr
