"""An estimator that asks for a reward by name: the example of docs/authors/algorithms.md, in a run, under the kit, and refused."""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlcore.api import AdvantageEstimator
from rlcore.testing import AdvantageSuite, RunTester, make_reward_batch

PAGE = Path(__file__).parents[2] / "docs" / "authors" / "algorithms.md"
SOURCE = re.search(r"```python\n(?P<code>(?:(?!```).)*?class Gated.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
assert SOURCE is not None
CODE = SOURCE["code"]
REWARDS = """
def even(item):
    return float(len(item.text) % 2 == 0)

def letters(item):
    return float(sum(map(ord, item.text)))
"""


def gated() -> Any:
    module = ModuleType("gated")
    exec(compile(CODE, "gated.py", "exec", dont_inherit=True), vars(module))
    return module.Gated(module.Gated.Options(gate="reward"))


class TestGated(AdvantageSuite):
    shift_invariant = False  # a reward of 0 stays 0

    def make(self) -> AdvantageEstimator:
        made: AdvantageEstimator = gated()
        return made


def test_a_gate_closes_the_others() -> None:
    batch = make_reward_batch([3.0, 1.0, -2.0, 2.0], [0, 0, 0, 0], needs=gated().needs)
    assert gated().estimate(batch).tolist() == [1.5, -0.5, -1.5, 0.5]


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write("gated.py", CODE)
    made.write("rewards.py", REWARDS)
    return made


def a_run(tester: RunTester) -> str:
    path = tester.fake_run(
        run={"num_episodes": 50, "max_steps": 3},
        sampling={"max_new_tokens": 4, "num_generations": 4},
        log={"rollout_interval": 1},
    )
    config = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    config["rewards"] = [{"name": "./rewards.py:even", "weight": 0.0}, {"name": "./rewards.py:letters", "weight": 0.01}]
    return str(tester.write_toml("run.toml", config))


def test_it_reads_a_reward_of_weight_0(tester: RunTester) -> None:
    words = ["train", a_run(tester), "--estimator", "./gated.py:Gated", "--gate", "even", "--json"]
    done = tester.run(*words).assert_ok()
    folder = tester.folder / done.json["run"]

    rows = [json.loads(line) for line in gzip.decompress((folder / "rollouts/step-1.jsonl.gz").read_bytes()).splitlines()]
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["prompt_id"], []).append(row)
    closed = 0
    for group in groups.values():
        values = [row["reward"] if len(row["text"]) % 2 == 0 else 0.0 for row in group]
        closed += sum(len(row["text"]) % 2 for row in group)
        assert [row["advantage"] for row in group] == pytest.approx([value - sum(values) / len(values) for value in values], abs=1e-5)
    assert 0 < closed < len(rows)


def test_a_name_that_no_reward_has_is_refused_at_the_dry_run(tester: RunTester) -> None:
    refused = tester.run("train", a_run(tester), "--estimator", "./gated.py:Gated", "--gate", "evn", "--dry-run")
    refused.assert_refused("--gate evn must name a reward of the run", "did you mean 'even'", "its rewards are: even, letters")
    tester.run("train", a_run(tester), "--estimator", "./gated.py:Gated", "--dry-run").assert_refused("has no gate")
