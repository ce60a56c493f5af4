"""A fake run with evaluations, whose checkpoints are evaluated again."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import RunTester


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunTester, RunRecord]:
    """Three updates, each evaluated with two samples a prompt and saved."""
    tester = RunTester(tmp_path_factory.mktemp("run"), in_process=True).with_fakes()
    tester.fake_data("held.jsonl", "abcd")
    sections = {
        "eval": {"eval_dataset": {"letters": "held.jsonl"}, "eval_interval": 1, "eval_samples": 2},
        "log": {"save_interval": 1, "keep_checkpoints": 9},
    }
    outcome = tester.run("train", tester.fake_run(**sections), "--json").assert_ok()
    return tester, RunRecord(tester.folder / outcome.json["run"])


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    """A fake model ``model`` and a configuration ``run.toml`` in an empty project."""
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.fake_run()
    made.fake_data("held.jsonl", "abcd")
    return made
