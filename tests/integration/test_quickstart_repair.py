"""``rlcore quickstart --task repair``: a tiny model learns to write patches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.levels import need


@pytest.fixture(autouse=True)
def _sessions() -> None:
    need("namespaces")


@pytest.mark.full
def test_two_steps_with_repositories(tmp_path: Path) -> None:
    tester = RunTester(tmp_path)
    outcome = tester.run("quickstart", "--task", "repair", "--max-steps", "2", "-tbs", "2", "--json").assert_ok().json
    assert Path(outcome["run"]).parts[:2] == ("quickstart-repair", "runs")
    assert outcome["accuracy_before"] <= 0.3
    chats = tester.run("rollouts", outcome["run"]).assert_ok().stdout
    assert "def " in chats
    assert "applies" in chats


@pytest.mark.nightly
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_it_learns_to_repair(tmp_path: Path, seed: str) -> None:
    outcome = RunTester(tmp_path).run("quickstart", "--task", "repair", "--seed", seed, "--json", timeout=1400).assert_ok().json
    lines = (tmp_path / outcome["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    applies = [found for line in lines if (found := json.loads(line).get("eval/repair/conversation/applies")) is not None]
    assert applies[0] <= 0.3
    assert applies[-1] >= 0.9
