"""What ends a run: the death of what it cannot do without, Ctrl-C, SIGTERM, the death of the driver. Nothing lives on, and nobody waits."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.integration.ray.conftest import SmallCluster, joined
from tests.integration.ray.faults import BackgroundRun, Killer, Process, fault_run, processes_of, until

KILLS = 4
LONG = 200
"""Episodes of a run that is not meant to reach its end."""


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        ("ScheduleActor", "the coordinator died ("),
        ("TrainerWorker", "of 2 died ("),
    ],
)
def test_the_run_ends_with_the_last_checkpoint_named(
    cluster: SmallCluster, tester: RunTester, killer: Killer, cls: str, words: str
) -> None:
    config = fault_run(tester, LONG, log={"save_interval": 2}, schedule={"max_restores": 0})
    with joined(tester, cluster, config, "-i", "1", "-t", "2") as run:
        run.reach(3)
        killer.kill(run, lambda: run.actors(cls), cls)
        since = time.monotonic()
        outcome = run.outcome()
        seconds = time.monotonic() - since
    assert outcome.exit_code == 1, outcome
    assert words in outcome.error
    named = Path(outcome.error.rpartition("the last checkpoint is ")[2])
    assert (tester.folder / named / "model" / "fake_policy.npz").is_file(), outcome.error
    print(f"{cls}: {seconds:.1f} s from the kill to the end")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_one_signal_ends_the_run_after_the_step_and_saves(cluster: SmallCluster, tester: RunTester, number: signal.Signals) -> None:
    with joined(tester, cluster, fault_run(tester, LONG), "-i", "2", "-t", "1") as run:
        run.reach(2)
        run.process.send_signal(number)
        outcome = run.outcome()
    assert outcome.exit_code == 130, outcome
    assert outcome.summary["interrupted"]
    assert outcome.folder is not None
    assert (outcome.folder / "checkpoints" / f"step-{outcome.summary['steps']}" / "model").is_dir()


@pytest.mark.nightly
def test_a_second_signal_ends_the_run_at_once(ray_dir: Path, tester: RunTester) -> None:
    config = fault_run(tester, LONG, inference={"options": {"seconds": 1.0}}, eval={"eval_dataset": {}})
    with BackgroundRun(tester, ("train", config, "-i", "2", "-t", "1", "--ray_dir", str(ray_dir)), ray_dir) as run:
        run.reach(1)
        os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does: Ray's processes must not hear of it
        run.said("a second interrupt stops it now")
        os.killpg(run.process.pid, signal.SIGINT)
        outcome = run.outcome()
    assert outcome.exit_code == 130, outcome
    assert outcome.error == "error: interrupted"


@pytest.mark.nightly
def test_sigterm_to_the_whole_process_group_is_for_the_driver_alone(ray_dir: Path, tester: RunTester) -> None:
    argv = ("train", fault_run(tester, LONG), "-i", "2", "-t", "1", "--ray_dir", str(ray_dir))
    with BackgroundRun(tester, argv, ray_dir) as run:
        run.reach(2)
        os.killpg(run.process.pid, signal.SIGTERM)  # timeout(1), a supervisor, scancel
        outcome = run.outcome()
    assert outcome.exit_code == 130, outcome
    assert outcome.summary["interrupted"]


@pytest.mark.nightly
def test_ctrl_c_while_ray_starts_leaves_nothing(ray_dir: Path, tester: RunTester) -> None:
    argv = ("train", fault_run(tester, LONG), "-i", "2", "-t", "1", "--ray_dir", str(ray_dir))
    with BackgroundRun(tester, argv, ray_dir) as run:
        others = lambda: [process for process in processes_of(ray_dir) if process.pid != run.process.pid]  # noqa: E731
        until(lambda: bool(others()) or run.over, "the first of Ray's processes")
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.outcome().exit_code == 130


@pytest.mark.nightly  # Ray's agents take their minute
def test_nothing_outlives_a_driver_that_is_killed(ray_dir: Path, tester: RunTester, killer: Killer) -> None:
    config = fault_run(tester, LONG)
    with BackgroundRun(tester, ("train", config, "-i", "2", "-t", "2", "--ray_dir", str(ray_dir)), ray_dir) as run:
        run.reach(2)
        assert len(processes_of(ray_dir)) > 6
        killer.kill(run, lambda: [Process(run.process.pid, "the driver")], "the driver")
        assert run.outcome().exit_code == -signal.SIGKILL


def test_a_driver_that_is_killed_leaves_nothing_on_a_cluster(cluster: SmallCluster, tester: RunTester, killer: Killer) -> None:
    with joined(tester, cluster, fault_run(tester, LONG), "-i", "2", "-t", "1", "--transport", "object_store") as run:
        run.reach(2)
        killer.kill(run, lambda: [Process(run.process.pid, "the driver")], "the driver")
        assert run.outcome().exit_code == -signal.SIGKILL
