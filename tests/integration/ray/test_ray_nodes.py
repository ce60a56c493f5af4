"""Nodes that go: producers move to another one, a trainer's node takes the run back to its last checkpoint, on another node."""

from __future__ import annotations

import pytest

from rlcore.testing import RunTester
from tests.integration.ray.conftest import SmallCluster, joined
from tests.integration.ray.faults import fault_run

REMOVED = 2


def test_producers_of_a_node_that_goes_move_to_another(cluster: SmallCluster, tester: RunTester) -> None:
    first, second = cluster.add(2), cluster.add(2)
    try:
        with joined(tester, cluster, fault_run(tester, 20), "-i", "2", "-t", "1", "--transport", "object_store") as run:
            run.reach(4)
            homes = cluster.homes()
            assert len(homes["ProducerWorker"]) == 2, homes
            assert not homes["ProducerWorker"] & homes["TrainerWorker"], homes
            cluster.remove(first)
            outcome = run.outcome()
        outcome.balances(6 * 20, staleness=2).learned()
        assert "the process of producer-0 died" in str(outcome) or "the process of producer-1 died" in str(outcome)
        assert "producers were restarted" in str(outcome)
    finally:
        cluster.remove(second)


@pytest.mark.nightly
def test_without_restores_the_node_of_the_trainer_cannot_go(cluster: SmallCluster, tester: RunTester) -> None:
    large = cluster.add(8)
    config = fault_run(tester, 200, log={"save_interval": 2}, schedule={"max_restores": 0})
    with joined(tester, cluster, config, "-i", "2", "-t", "1", "--transport", "object_store") as run:
        run.reach(3)
        cluster.remove(large)
        outcome = run.outcome()
    assert outcome.exit_code == 1, outcome
    assert "trainer rank 0 of 1 died" in outcome.error
    assert "the last checkpoint is " in outcome.error


@pytest.mark.nightly
def test_a_rank_whose_node_goes_is_restored_on_another(cluster: SmallCluster, tester: RunTester) -> None:
    large, other = cluster.add(8), cluster.add(4)
    try:
        config = fault_run(tester, 20, log={"save_interval": 3}, schedule={"heartbeat_deadline": 10.0})
        with joined(tester, cluster, config, "-i", "2", "-t", "1", "--transport", "object_store") as run:
            run.reach(7)
            cluster.remove(large)
            outcome = run.outcome()
        outcome.balances(6 * 20, staleness=2).learned()
        assert "resumes automatically from step" in str(outcome)
    finally:
        cluster.remove(other)
