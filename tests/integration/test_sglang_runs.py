"""Runs whose producers have SGLang's engine, in the environment that holds it: local, and two producers on Ray.

`make test-sglang` builds the environment and names it in RLCORE_TEST_SGLANG; without that these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from rlcore_plugin_quickstart.assets import prepare

from rlcore.testing import RunOutcome, RunTester

ENVIRONMENT = os.environ.get("RLCORE_TEST_SGLANG", "")
SECONDS = 900.0
"""What a run may take on a machine that has other work: an engine alone needs up to a minute to start."""
pytestmark = [
    pytest.mark.skipif(not ENVIRONMENT, reason="needs the environment of SGLang: make test-sglang builds it and runs these tests"),
    pytest.mark.timeout(SECONDS + 100),
]
FLAGS = f"run.toml -b sglang --max-steps 4 -ei 0 --inference-environment {shlex.quote(ENVIRONMENT)} --json"


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    prepare(tmp_path / "demo", 0, lambda line: None)
    return RunTester(tmp_path / "demo")


def metrics(tester: RunTester, outcome: RunOutcome) -> list[dict[str, float]]:
    """Of each update, and not of the evaluation at the end."""
    lines = (tester.folder / outcome.json["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if "sampler_gap" in row]


def test_a_local_run_trains_on_what_the_trainer_says_of_its_tokens(tester: RunTester) -> None:
    outcome = tester.run("train", *shlex.split(FLAGS), "--max-staleness", "0", timeout=SECONDS).assert_ok()
    assert (outcome.json["steps"], outcome.json["ledger"]["failed"], outcome.json["remarks"]) == (4, 0, [])
    for row in metrics(tester, outcome):
        assert (row["staleness/max"], row["sampler_gap"] < 1e-5) == (0.0, True)  # the same weights on both sides


@pytest.mark.nightly  # make bench-engines trains two producers on Ray to the end
def test_two_producers_on_ray_train(tester: RunTester) -> None:
    words = [*shlex.split(FLAGS), "--runtime", "ray", "-i", "2", "--max-staleness", "2"]
    outcome = tester.run("train", *words, timeout=SECONDS).assert_ok()
    assert (outcome.json["steps"], outcome.json["ledger"]["failed"]) == (4, 0)
    first, *later = metrics(tester, outcome)
    assert (first["staleness/max"], first["sampler_gap"] < 1e-5) == (0.0, True)
    assert any(row["staleness/max"] > 0 for row in later)
