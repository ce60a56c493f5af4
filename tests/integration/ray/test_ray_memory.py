"""Ray kills processes of a run whose node runs out of memory: the run ends with one sentence that says what to lower."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.testing import RunTester


@pytest.mark.nightly
@pytest.mark.full
def test_a_run_whose_processes_ray_kills_for_memory_ends_with_one_sentence(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    everything_is_too_much = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "100"}
    done = tester.run("train", tester.fake_run(), "--runtime", "ray", "--json", env=everything_is_too_much)
    assert done.exit_code == 1
    assert "Ray killed its process because its node ran out of memory, " in done.json["error"]
    assert "lower -tmbs, -imbs or --tokens-per-forward" in done.json["error"]
    assert "Top 10 memory users" not in done.stderr
