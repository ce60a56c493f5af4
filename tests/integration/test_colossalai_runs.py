"""Whole runs of trainer colossalai with producers of transformers: each version of its gathered weights is proved before it generates; a
rank that is killed costs the updates since the last checkpoint. `make test-colossalai` names its environment in RLCORE_TEST_COLOSSALAI."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_quickstart.digits_tokenizer import build_tokenizer
from rlcore_plugin_quickstart.task import make_split
from rlcore_plugin_quickstart.warmstart import WarmStartSettings, save_model, warm_start
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import RunTester
from tests.integration.ray.faults import BackgroundRun, Outcome
from tests.integration.test_restores import strike

COLOSSALAI = os.environ.get("RLCORE_TEST_COLOSSALAI", "")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not COLOSSALAI, reason="needs the environment of ColossalAI: make test-colossalai builds it"),
]
GROUPS = 4
"""Prompts of an update."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is right at times, so that its updates move it."""
    folder = tmp_path_factory.mktemp("base")
    tokenizer = build_tokenizer()
    save_model(warm_start(make_split(0, 400, 8).train, tokenizer, 0, WarmStartSettings(heads=4, target=0.1), print).model, folder)
    tokenizer.save_pretrained(folder)
    return folder


def project(folder: Path, base: Path, updates: int, **training: Any) -> tuple[RunTester, str]:
    """At staleness 0, so that every version is generated with."""
    tester = RunTester(folder)
    problems = make_split(0, GROUPS * updates, 8).train
    tester.write("train.jsonl", "".join(json.dumps(problem.row()) + "\n" for problem in problems))
    ranks = {"name": "colossalai", "environment": COLOSSALAI, "num_trainers": 2, "train_batch_size": GROUPS, "learning_rate": 4e-4}
    config = {
        "run": {"runtime": "local", "max_steps": updates, "num_episodes": 1},
        "model": {"model": str(base)},
        "data": {"dataset": "train.jsonl", "system_prompt": "", "max_prompt_tokens": 64},
        "sampling": {"num_generations": 4, "max_new_tokens": 16},
        "inference": {"name": "transformers"},
        "training": {**ranks, **training},
        "schedule": {"max_staleness": 0, "reward_workers": 1, "heartbeat_deadline": 10.0},
        "log": {"rollout_interval": 1, "save_interval": 4},
        "rewards": [{"name": "boxed"}],
    }
    return tester, str(tester.write_toml("run.toml", config))


def versions(outcome: Outcome) -> list[int]:
    """Of the weights that the tokens of each trained rollout were sampled with, without repetitions."""
    assert outcome.folder is not None
    record = RunRecord(outcome.folder)
    return sorted({row["version"] for step in record.rollout_steps() for row in record.rollouts(step)})


@pytest.mark.nightly
@pytest.mark.parametrize("layout", [{"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2}], ids=["tensor", "pipeline"])
def test_each_of_a_hundred_versions_is_proved_by_the_probe(tmp_path: Path, base: Path, layout: dict[str, int]) -> None:
    """A producer generates with no version before its log probabilities are those of the trainer."""
    tester, config = project(tmp_path, base, 100, **layout)
    with BackgroundRun(tester, ("train", config, "--json"), tmp_path) as run:
        outcome = run.outcome()
    outcome.balances(100 * GROUPS, staleness=0)
    assert versions(outcome) == list(range(100))
    moved = [row["grad_norm"] for row in outcome.rows("metrics.jsonl") if row.get("grad_norm")]
    assert len(moved) > 50, "what does not move proves nothing"


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param({"tensor_parallel_size": 2}, id="tensor", marks=pytest.mark.nightly),
        pytest.param({"pipeline_parallel_size": 2}, id="pipeline"),
    ],
)
def test_a_rank_that_is_killed_in_an_update_costs_the_updates_since_the_last_checkpoint(
    tmp_path: Path, base: Path, layout: dict[str, int]
) -> None:
    """Forwards of one response make the update the longest part of a step."""
    tester, config = project(tmp_path, base, 12, train_microbatch_size=1, **layout)
    with BackgroundRun(tester, ("train", config, "--json"), tmp_path) as run:
        run.reach(6)
        strike(run, "trainer rank 1", signal.SIGKILL)
        outcome = run.outcome()
    outcome.balances(12 * GROUPS, staleness=0)
    assert [row["step"] for row in outcome.rows("metrics.jsonl") if "seconds" in row] == list(range(1, 13))
    (said,) = [line for line in outcome.stderr if line.startswith("warning: trainer rank 1 of 2 died (killed by signal 9")]
    assert "resumes automatically from step 4, restore 1 of at most 3" in said
