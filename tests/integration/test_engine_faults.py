"""A process of an engine dies or stops in the middle of a run: its producer is replaced, and every batch is trained on.

`make test-vllm` and `make test-sglang` build the environments and name them in RLCORE_TEST_VLLM and RLCORE_TEST_SGLANG; a test without its
environment is skipped.
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

pytestmark = pytest.mark.timeout(900)
ENGINES = {
    "vllm": ("RLCORE_TEST_VLLM", 'name = "vllm"\noptions = { own_process = true }', "VLLM::EngineCore"),
    "sglang": ("RLCORE_TEST_SGLANG", 'name = "sglang"', "sglang::scheduler"),
}
"""Engine -> the variable that names its environment, how a run asks for it, and what the process that computes calls itself."""
NIGHTLY = {("vllm", signal.SIGKILL), ("sglang", signal.SIGSTOP)}
STEPS, PROMPTS = 8, 16
PATIENCE = 400.0
"""Seconds that engines may take on a machine that has other work."""


def family(pid: int) -> dict[int, str]:
    """All descendants of a process and what they call themselves."""
    mine = children(pid)
    return mine | {deeper: command for child in mine for deeper, command in family(child).items()}


@pytest.mark.parametrize(
    ("engine", "sent"),
    [
        pytest.param(engine, sent, id=f"{engine} {sent.name}", marks=pytest.mark.nightly if (engine, sent) in NIGHTLY else ())
        for engine in ENGINES
        for sent in (signal.SIGKILL, signal.SIGSTOP)
    ],
)
def test_a_process_of_the_engine_that_dies_or_stops_costs_a_producer_and_no_batch(
    engine: str, sent: signal.Signals, tmp_path: Path
) -> None:
    variable, asked, called = ENGINES[engine]
    if not (environment := os.environ.get(variable, "")):
        pytest.skip(f"needs the environment of {engine}: make test-{engine} builds it and runs this test")
    assets = prepare(tmp_path / "demo", 0, lambda line: None)
    text = assets.run_toml.read_text(encoding="utf-8")
    assert 'name = "transformers"' in text
    assets.run_toml.write_text(text.replace('name = "transformers"', asked), encoding="utf-8")
    deadlines = ("--producer-deadline", "25", "--producer-load-deadline", "600")
    size = ("-tbs", str(PROMPTS), "--max-steps", str(STEPS), "-ei", "0", "--max-staleness", "2")
    argv = ("train", "run.toml", "--inference-environment", environment, *deadlines, *size, "--json")
    with BackgroundRun(RunTester(assets.folder), argv, tmp_path) as run:
        until(lambda: run.step >= 2 or run.over, "the second update", PATIENCE)
        ours = family(run.process.pid)
        engines = [pid for pid, command in ours.items() if command.startswith(called)]
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
