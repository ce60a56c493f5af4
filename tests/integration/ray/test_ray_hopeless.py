"""Producers that fail whenever they work: the run goes on without them while there are others, and says so; without any it ends."""

from __future__ import annotations

import pytest

from rlcore.testing import RunTester
from tests.integration.ray.conftest import SmallCluster, joined
from tests.integration.ray.faults import fault_run


def test_a_producer_that_fails_again_and_again_is_given_up(cluster: SmallCluster, tester: RunTester) -> None:
    engine = {"options": {"slots": str(tester.folder / "slots"), "doomed": [1], "deaths": 2}}
    config = fault_run(tester, 12, inference=engine, schedule={"producer_restarts": 1})
    with joined(tester, cluster, config, "-i", "2", "-t", "1") as run:
        outcome = run.outcome()
    outcome.balances(6 * 12, staleness=2).learned()
    assert "it failed 2 times in a row; the run continues with 1 producer" in str(outcome)
    (remark,) = [remark for remark in outcome.summary["remarks"] if "given up" in remark]
    assert "it failed 2 times in a row" in remark
    assert "the run continued with 1" in remark


@pytest.mark.nightly
def test_a_producer_that_hangs_is_replaced(cluster: SmallCluster, tester: RunTester) -> None:
    """The only one, so that what was trained after it hung was made by the one that took its place."""
    engine = {"options": {"slots": str(tester.folder / "slots"), "doomed": [0], "polls": 20, "hangs": True}}
    config = fault_run(tester, 6, inference=engine, schedule={"producer_deadline": 1.0})
    with joined(tester, cluster, config, "-i", "1", "-t", "1") as run:
        outcome = run.outcome()
    outcome.balances(6 * 6, staleness=2)
    assert "producer-0 was lost (its engine SlowInference has not come back for 1 s, and was last at " in str(outcome)
    assert "threading.py" in str(outcome)
    assert "; producer-0.1 takes its place" in str(outcome)
    assert "given up" not in str(outcome)
    total = outcome.rows("times.jsonl")[-1]["workers"]
    assert sum(seconds["compute"] for name, seconds in total.items() if name.startswith("producer-0.")) > 0, total


def test_without_a_producer_the_run_ends_with_one_sentence(cluster: SmallCluster, tester: RunTester) -> None:
    engine = {"options": {"slots": str(tester.folder / "slots"), "doomed": [0, 1]}}
    config = fault_run(tester, 12, inference=engine, schedule={"producer_restarts": 1})
    with joined(tester, cluster, config, "-i", "2", "-t", "1") as run:
        outcome = run.outcome()
    assert outcome.exit_code == 1, outcome
    assert "no producer is left" in outcome.error
    assert "failed 2 times in a row" in outcome.error
    assert outcome.error.endswith("nothing was saved yet")
