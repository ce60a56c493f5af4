"""The quickstart with two producers and two trainer ranks on this machine learns what it learns in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.testing import RunTester


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("steps", "accuracy"), [pytest.param(20, 0.0, marks=pytest.mark.nightly), pytest.param(100, 0.9, marks=pytest.mark.nightly)]
)
def test_two_producers_and_two_ranks_reach_the_accuracy_of_one_process(tmp_path: Path, ray_dir: Path, steps: int, accuracy: float) -> None:
    words = ("quickstart", "demo", "-i", "2", "-t", "2", "--max-steps", str(steps), "--ray-dir", str(ray_dir), "--json")
    figures = RunTester(tmp_path).run(*words, timeout=1100).assert_ok().json
    assert figures["accuracy_before"] <= 0.6
    assert figures["accuracy_after"] > max(accuracy, figures["accuracy_before"])
    assert figures["ledger"] == {"trained": 32 * steps, "filtered": 0, "failed": 0}
