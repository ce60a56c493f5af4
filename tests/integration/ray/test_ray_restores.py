"""What is stopped on Ray is noticed by the driver; what cannot be replaced alone is restored from the last checkpoint."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.integration.ray.conftest import SmallCluster, joined
from tests.integration.ray.faults import BackgroundRun, fault_run

EPISODES = 12
SCHEDULE = {"heartbeat_deadline": 5.0}
DIED, STOPPED = r"died \(", r"was lost \(its process has not answered for 5 s\)"
STRIKES = (
    (4, "TrainerWorker", signal.SIGKILL, rf"trainer rank \d of 2 {DIED}"),
    (8, "ScheduleActor", signal.SIGKILL, f"the coordinator {DIED}"),
    (12, "TrainerWorker", signal.SIGSTOP, rf"trainer rank \d of 2 {STOPPED}"),
)
"""After which update, what, and the beginning of the warning. The longest way to a new checkpoint is three updates."""


def test_a_run_that_loses_ranks_and_the_coordinator_one_after_the_other_is_restored_each_time(
    cluster: SmallCluster, tester: RunTester
) -> None:
    config = fault_run(tester, EPISODES, log={"save_interval": 3}, schedule=SCHEDULE)
    with joined(tester, cluster, config, "-i", "2", "-t", "2") as run:
        for step, cls, number, said in STRIKES:
            run.reach(step)
            run.strike(cls, number)
            run.said(rf"^warning: {said}.* resumes automatically from step .*, restore \d of at most 3 in a row$")
        outcome = run.outcome()
    outcome.balances(6 * EPISODES, staleness=2).learned()


@pytest.mark.nightly
def test_a_coordinator_that_is_stopped_is_restored(cluster: SmallCluster, tester: RunTester) -> None:
    config = fault_run(tester, EPISODES, log={"save_interval": 3}, schedule=SCHEDULE)
    with joined(tester, cluster, config, "-i", "2", "-t", "2") as run:
        run.reach(7)
        run.strike("ScheduleActor", signal.SIGSTOP)
        run.said(f"^warning: the coordinator {STOPPED}.* resumes automatically from step")
        outcome = run.outcome()
    outcome.balances(6 * EPISODES, staleness=2).learned()


@pytest.mark.nightly
def test_a_run_with_a_cluster_of_its_own_is_restored(ray_dir: Path, tester: RunTester) -> None:
    config = fault_run(tester, EPISODES, log={"save_interval": 3})
    with BackgroundRun(tester, ("train", config, "-i", "2", "-t", "1", "--ray_dir", str(ray_dir)), ray_dir) as run:
        run.reach(7)
        run.strike("TrainerWorker", signal.SIGKILL)
        outcome = run.outcome()
    outcome.balances(6 * EPISODES, staleness=2).learned()
