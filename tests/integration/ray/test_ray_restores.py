"""What is stopped on Ray is noticed by the driver; what cannot be replaced alone is restored from the last checkpoint."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.integration.ray.conftest import SmallCluster, joined
from tests.integration.ray.faults import BackgroundRun, fault_run, until

EPISODES = 12
SCHEDULE = {"heartbeat_deadline": 5.0}


def strike(run: BackgroundRun, cls: str, number: signal.Signals) -> None:
    """Send a signal to an actor of this class."""
    victims = until(lambda: run.actors(cls), cls)
    os.kill(victims[0].pid, number)


@pytest.mark.parametrize(
    ("cls", "number"),
    [
        ("TrainerHost", signal.SIGSTOP),
        pytest.param("ScheduleService", signal.SIGKILL, marks=pytest.mark.nightly),
        pytest.param("TrainerHost", signal.SIGKILL, marks=pytest.mark.nightly),
        pytest.param("ScheduleService", signal.SIGSTOP, marks=pytest.mark.nightly),
    ],
)
def test_a_rank_or_the_coordinator_is_restored(cluster: SmallCluster, tester: RunTester, cls: str, number: signal.Signals) -> None:
    config = fault_run(tester, EPISODES, log={"save_interval": 3}, schedule=SCHEDULE)
    with joined(tester, cluster, config, "-i", "2", "-t", "2") as run:
        run.reach(7)
        strike(run, cls, number)
        outcome = run.outcome()
    outcome.balances(6 * EPISODES, staleness=2).learned()
    who = "trainer rank" if cls == "TrainerHost" else "the coordinator"
    assert any(line.startswith(f"warning: {who}") and "goes on by itself from step" in line for line in str(outcome).splitlines()), outcome


@pytest.mark.parametrize(
    ("cls", "what"),
    [("GroupStore", "the store of its node"), pytest.param("JudgeHost", "the judge of its node", marks=pytest.mark.nightly)],
)
def test_a_service_that_is_stopped_is_ended_and_started_anew(cluster: SmallCluster, tester: RunTester, cls: str, what: str) -> None:
    with joined(tester, cluster, fault_run(tester, EPISODES, schedule=SCHEDULE), "-i", "2", "-t", "1") as run:
        run.reach(5)
        strike(run, cls, signal.SIGSTOP)
        outcome = run.outcome()
    outcome.balances(6 * EPISODES, staleness=2).learned()
    assert f"warning: {what} was lost (its process has not answered for 5 s); it is ended and started anew" in str(outcome)


@pytest.mark.nightly
def test_a_run_with_a_cluster_of_its_own_is_restored(ray_dir: Path, tester: RunTester) -> None:
    config = fault_run(tester, EPISODES, log={"save_interval": 3})
    with BackgroundRun(tester, ("train", config, "-i", "2", "-t", "1", "--ray_dir", str(ray_dir)), ray_dir) as run:
        run.reach(7)
        strike(run, "TrainerHost", signal.SIGKILL)
        outcome = run.outcome()
    outcome.balances(6 * EPISODES, staleness=2).learned()
