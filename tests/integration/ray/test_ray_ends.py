"""What ends a run: the death of what it cannot do without, Ctrl-C, SIGTERM, the death of the driver. Nothing lives on, and nobody waits."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.integration.ray.conftest import SmallCluster, joined, no_new_shared_memory, shared_memory
from tests.integration.ray.faults import BackgroundRun, Killer, Process, fault_run, processes_of, until

KILLS = 4
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Of Ray itself: after a driver's death by force they try for 60 s to report the end of their node to a head that is gone."""
LONG = 200
"""Episodes of a run that is not meant to reach its end."""


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        ("ScheduleService", "the coordinator died, and the run cannot go on without it"),
        ("TrainerHost", "of 2 died, and the run cannot go on without it"),
    ],
)
def test_the_run_ends_with_the_last_checkpoint_named(
    cluster: SmallCluster, tester: RunTester, killer: Killer, cls: str, words: str
) -> None:
    config = fault_run(tester, LONG, log={"save_interval": 2})
    with joined(tester, cluster, config, "-i", "2", "-t", "2") as run:
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_the_run_after_the_step_and_saves(cluster: SmallCluster, tester: RunTester, number: signal.Signals) -> None:
    with joined(tester, cluster, fault_run(tester, LONG), "-i", "2", "-t", "1") as run:
        run.reach(2)
        run.process.send_signal(number)
        outcome = run.outcome()
    assert outcome.exit_code == 130, outcome
    assert outcome.summary["interrupted"]
    assert outcome.folder is not None
    assert (outcome.folder / "checkpoints" / f"step-{outcome.summary['steps']}" / "model").is_dir()


@pytest.fixture
def own_ray() -> Iterator[Path]:
    """The folder of a Ray that a run starts for itself, of which nothing is left."""
    pytest.importorskip("ray", reason="Ray is not installed (extra dev)")
    before = shared_memory()
    with tempfile.TemporaryDirectory(prefix="rl", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)
        until(lambda: all(process.title in AGENTS for process in processes_of(Path(name))), "all but Ray's agents to end", 30.0)
        until(lambda: not processes_of(Path(name)), lambda: f"these to end: {processes_of(Path(name))}", 110.0)
    no_new_shared_memory(before)


def test_a_second_signal_ends_the_run_at_once(own_ray: Path, tester: RunTester) -> None:
    config = fault_run(tester, LONG, inference={"options": {"seconds": 1.0}}, eval={"eval_dataset": {}})
    with BackgroundRun(tester, ("train", config, "-i", "2", "-t", "1", "--ray_dir", str(own_ray)), own_ray) as run:
        run.reach(1)
        os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does: Ray's processes must not hear of it
        run.said("once more stops it now")
        os.killpg(run.process.pid, signal.SIGINT)
        outcome = run.outcome()
    assert outcome.exit_code == 130, outcome
    assert outcome.error == "error: interrupted"


def test_sigterm_to_the_whole_process_group_is_for_the_driver_alone(own_ray: Path, tester: RunTester) -> None:
    argv = ("train", fault_run(tester, LONG), "-i", "2", "-t", "1", "--ray_dir", str(own_ray))
    with BackgroundRun(tester, argv, own_ray) as run:
        run.reach(2)
        os.killpg(run.process.pid, signal.SIGTERM)  # timeout(1), a supervisor, scancel
        outcome = run.outcome()
    assert outcome.exit_code == 130, outcome
    assert outcome.summary["interrupted"]


def test_ctrl_c_while_ray_starts_leaves_nothing(own_ray: Path, tester: RunTester) -> None:
    argv = ("train", fault_run(tester, LONG), "-i", "2", "-t", "1", "--ray_dir", str(own_ray))
    with BackgroundRun(tester, argv, own_ray) as run:
        others = lambda: [process for process in processes_of(own_ray) if process.pid != run.process.pid]  # noqa: E731
        until(lambda: bool(others()) or run.over, "the first of Ray's processes")
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.outcome().exit_code == 130


@pytest.mark.nightly  # Ray's agents take their minute
def test_nothing_outlives_a_driver_that_is_killed(own_ray: Path, tester: RunTester, killer: Killer) -> None:
    config = fault_run(tester, LONG)
    with BackgroundRun(tester, ("train", config, "-i", "2", "-t", "2", "--ray_dir", str(own_ray)), own_ray) as run:
        run.reach(2)
        assert len(processes_of(own_ray)) > 6
        killer.kill(run, lambda: [Process(run.process.pid, "the driver")], "the driver")
        assert run.outcome().exit_code == -signal.SIGKILL


def test_a_driver_that_is_killed_leaves_nothing_on_a_cluster(cluster: SmallCluster, tester: RunTester, killer: Killer) -> None:
    with joined(tester, cluster, fault_run(tester, LONG), "-i", "2", "-t", "1", "--transport", "object_store") as run:
        run.reach(2)
        killer.kill(run, lambda: [Process(run.process.pid, "the driver")], "the driver")
        assert run.outcome().exit_code == -signal.SIGKILL
