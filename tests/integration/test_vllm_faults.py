"""A process of vLLM's engine dies or stops in the middle of a run: its producer is replaced, and every batch is trained on.

`make test-vllm` builds the environment and names it in RLCORE_TEST_VLLM; without that these tests are skipped.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from rlcore_plugin_quickstart.assets import prepare

from rlcore.testing import RunTester
from tests.integration.ray.faults import BackgroundRun, until
from tests.integration.test_local_processes import children

ENVIRONMENT = os.environ.get("RLCORE_TEST_VLLM", "")
pytestmark = [
    pytest.mark.skipif(not ENVIRONMENT, reason="needs the environment of vLLM: make test-vllm builds it and runs these tests"),
    pytest.mark.timeout(900),
]
STEPS, PROMPTS = 8, 16
PATIENCE = 400.0
"""Seconds that engines may take on a machine that has other work."""


def family(pid: int) -> dict[int, str]:
    """All descendants of a process and what they call themselves."""
    mine = children(pid)
    return mine | {deeper: command for child in mine for deeper, command in family(child).items()}


@pytest.mark.parametrize(
    "sent", [pytest.param(signal.SIGKILL, id="kill", marks=pytest.mark.nightly), pytest.param(signal.SIGSTOP, id="stop")]
)
def test_a_process_of_the_engine_that_dies_or_stops_costs_a_producer_and_no_batch(sent: signal.Signals, tmp_path: Path) -> None:
    assets = prepare(tmp_path / "demo", 0, lambda line: None)
    text = assets.run_toml.read_text(encoding="utf-8")
    assert 'name = "transformers"' in text
    assets.run_toml.write_text(text.replace('name = "transformers"', 'name = "vllm"\noptions = { own_process = true }'), encoding="utf-8")
    deadlines = ("--producer-deadline", "25", "--producer-load-deadline", "600")
    size = ("-tbs", str(PROMPTS), "--max-steps", str(STEPS), "-ei", "0", "--max-staleness", "2")
    argv = ("train", "run.toml", "--inference-environment", ENVIRONMENT, *deadlines, *size, "--json")
    with BackgroundRun(RunTester(assets.folder), argv, tmp_path) as run:
        until(lambda: run.step >= 2 or run.over, "the second update", PATIENCE)
        ours = family(run.process.pid)
        engines = [pid for pid, command in ours.items() if command.startswith("VLLM::EngineCore")]
        assert engines, run.outcome() if run.over else ours
        os.kill(engines[-1], sent)
        until(lambda: run.over, "the end of the run", PATIENCE)
        outcome = run.outcome()
    assert outcome.exit_code == 0, outcome
    assert outcome.summary["ledger"]["trained"] == STEPS * PROMPTS
    assert outcome.summary["ledger"]["failed"] == 0
    assert "warning: producer-0 was lost (" in str(outcome)
    assert "producer-0.1 takes its place" in str(outcome)
    until(lambda: not [pid for pid in ours if Path(f"/proc/{pid}").exists()], "the end of its processes", 20.0)
