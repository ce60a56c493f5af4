"""A run whose producer is a server that somebody else runs: it is killed in the middle of the run, and started anew.

`make test-vllm` builds the environment of vLLM and names it in RLCORE_TEST_VLLM; without that these tests are skipped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rlcore_plugin_quickstart.assets import prepare

from rlcore.testing import RunTester
from tests.engine_servers import vllm_server
from tests.integration.ray.faults import BackgroundRun, until

ENVIRONMENT = os.environ.get("RLCORE_TEST_VLLM", "")
pytestmark = [
    pytest.mark.skipif(not ENVIRONMENT, reason="needs the environment of vLLM: make test-vllm builds it and runs these tests"),
    pytest.mark.timeout(900),
]
STEPS, PROMPTS = 8, 16
PATIENCE = 400.0
"""Seconds that a server may take on a machine that has other work."""


def test_a_server_that_is_killed_and_started_anew_in_mid_run_costs_a_producer_and_no_batch(tmp_path: Path) -> None:
    """The new server holds the first weights, whatever the run was at: the producer that takes over gives it the newest ones."""
    assets = prepare(tmp_path / "demo", 0, lambda line: None)
    server = vllm_server(Path(ENVIRONMENT), assets.folder / "base", tmp_path / "server.log", words=("--max-model-len", "256"))
    server.start()
    try:
        server.wait()
        (tmp_path / "weights").mkdir()
        text = assets.run_toml.read_text(encoding="utf-8")
        assert 'name = "transformers"' in text
        options = f'name = "endpoint"\noptions = {{ addresses = ["{server.address}"], shared_folder = "{tmp_path / "weights"}" }}'
        assets.run_toml.write_text(text.replace('name = "transformers"', options), encoding="utf-8")
        argv = ("train", "run.toml", "-tbs", str(PROMPTS), "--max-steps", str(STEPS), "-ei", "0", "--max-staleness", "2", "--json")
        with BackgroundRun(RunTester(assets.folder), argv, tmp_path) as run:
            until(lambda: run.step >= 2 or run.over, "the second update", PATIENCE)
            server.kill()
            server.start()
            until(lambda: run.over, "the end of the run", PATIENCE)
            outcome = run.outcome()
    finally:
        server.kill()
    assert outcome.exit_code == 0, outcome
    assert outcome.summary["ledger"]["trained"] == STEPS * PROMPTS
    assert outcome.summary["ledger"]["failed"] == 0
    assert "producer-0.1 takes its place" in str(outcome)
    lines = (assets.folder / outcome.summary["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if "sampler_gap" in row]  # of updates, and not of the evaluation at the end
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert all(row["sampler_gap"] < 1e-4 for row in rows if row["staleness/max"] == 0)
    assert not list((tmp_path / "weights").iterdir()), "versions are left in the shared folder"
