"""The quickstart with two producers and two trainer ranks on this machine learns what it learns in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.testing import RunTester


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_two_producers_and_two_ranks_reach_the_accuracy_of_one_process(tmp_path: Path, ray_dir: Path) -> None:
    outcome = RunTester(tmp_path).run("quickstart", "demo", "-i", "2", "-t", "2", "--ray-dir", str(ray_dir), "--json", timeout=580)
    figures = outcome.assert_ok().json
    assert figures["accuracy_before"] <= 0.6
    assert figures["accuracy_after"] >= 0.9
    assert figures["ledger"] == {"trained": 3200, "filtered": 0, "failed": 0}
