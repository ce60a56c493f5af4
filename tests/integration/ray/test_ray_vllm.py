"""Producers that run vLLM on Ray, in the environment that holds it: the quickstart's task.

`make test-vllm` builds the environment and names it in RLCORE_TEST_VLLM; without that these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_quickstart.assets import prepare

from rlcore.testing import RunOutcome, RunTester
from tests.integration.ray.conftest import SmallCluster

ENVIRONMENT = os.environ.get("RLCORE_TEST_VLLM", "")
SECONDS = 900.0
"""What a run may take on a machine that has other work: its engines alone need a minute to start."""
pytestmark = [
    pytest.mark.skipif(not ENVIRONMENT, reason="needs the environment of vLLM: make test-vllm builds it and runs these tests"),
    pytest.mark.timeout(SECONDS + 100),
]


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vllm") / "demo"
    prepare(folder, 0, lambda line: None)
    return folder


def rows_of(tester: RunTester, outcome: RunOutcome, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tester.folder / outcome.json["run"] / name).read_text(encoding="utf-8").splitlines()]


def assert_both_producers_worked(tester: RunTester, outcome: RunOutcome) -> None:
    workers = [row["workers"] for row in rows_of(tester, outcome, "times.jsonl")]
    for name in ("producer-0", "producer-1"):
        assert sum(row[name]["compute"] for row in workers if name in row) > 0, name


def test_two_producers_train_and_say_what_the_trainer_says_of_their_tokens(quickstart: Path, cluster: SmallCluster) -> None:
    tester = RunTester(quickstart)
    flags = f"run.toml -b vllm -i 2 --max-staleness 2 --max-steps 4 -ei 0 --inference-environment {shlex.quote(ENVIRONMENT)} --json"
    outcome = tester.run("train", *shlex.split(flags), "--master_address", cluster.address, timeout=SECONDS).assert_ok()
    assert (outcome.json["steps"], outcome.json["ledger"]["failed"], outcome.json["remarks"]) == (4, 0, [])
    assert_both_producers_worked(tester, outcome)
    first, *later = [row for row in rows_of(tester, outcome, "metrics.jsonl") if row["step"]]
    assert (first["staleness/max"], first["sampler_gap"] < 1e-5) == (0.0, True)  # the same weights on both sides
    assert any(row["staleness/max"] > 0 for row in later)
    assert (tester.folder / outcome.json["checkpoint"] / "model" / "model.safetensors").is_file()
