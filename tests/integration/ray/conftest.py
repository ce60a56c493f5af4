"""One small Ray cluster for all tests of the folder, a project with an engine slow enough to be killed, and what must be left: nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.integration.ray.faults import PATIENCE, BackgroundRun, Killer, processes_of, until
from tests.integration.ray.small_cluster import SmallCluster, end_processes, short_folder, small_cluster

AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Of Ray itself: after a driver's death by force they try for 60 s to report the end of their node to a head that is gone."""
ENGINE = Path(__file__).parent / "doomed_engine.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if not item.get_closest_marker("fast"):
            item.add_marker(pytest.mark.full)
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3 * PATIENCE))  # a test that waits says what for, before pytest ends it


@pytest.fixture
def ray_dir() -> Iterator[Path]:
    """The folder of a Ray that a run starts for itself, of which nothing is left."""
    before = shared_memory()
    with short_folder() as folder:
        try:
            yield folder
            until(lambda: all(process.title in AGENTS for process in processes_of(folder)), "all but Ray's agents to end", 60.0)
            until(lambda: not processes_of(folder), lambda: f"these to end: {processes_of(folder)}", 110.0)
        finally:
            end_processes(folder)
    no_new_shared_memory(before)


@pytest.fixture(scope="package")  # not longer: tests of other folders count the children of their process
def _cluster() -> Iterator[SmallCluster]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with short_folder() as folder, small_cluster(folder) as cluster:
        yield cluster


@pytest.fixture
def joint_cluster(_cluster: SmallCluster) -> Iterator[SmallCluster]:
    """The cluster, on which a test leaves neither actor nor placement group nor process. For tests beside which engines run, whose shared
    memory comes and goes."""
    yield _cluster
    _cluster.settle()
    until(lambda: not _cluster.leftovers(), lambda: f"these to end: {_cluster.leftovers()}", 60.0)


@pytest.fixture
def cluster(joint_cluster: SmallCluster) -> Iterator[SmallCluster]:
    """The cluster; nor does the test leave shared memory."""
    before = shared_memory()
    yield joint_cluster
    no_new_shared_memory(before)


def shared_memory() -> set[Path]:
    """The files in /dev/shm, save for those of engines, which other groups of tests may run at the same time."""
    return {path for path in Path("/dev/shm").iterdir() if not re.match(r"psm_|sem\.|tmp|torch_|rlcore-adapter-|.*cpushm_", path.name)}


def no_new_shared_memory(before: set[Path]) -> None:
    """No file in /dev/shm that was not there before, save for those that others use, who live."""
    until(lambda: not [file for file in shared_memory() - before if not _in_use(file)], "shared memory to go", 60.0)


def _in_use(file: Path) -> bool:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if str(file) in maps.read_text():
                return True
        except OSError:
            continue
    return False


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    """A project with the fakes and the slow engine."""
    made = RunTester(tmp_path).with_fakes()
    made.plugins.install("slow", ENGINE.read_text("utf-8"))
    return made


@pytest.fixture
def killer() -> Killer:
    """Counts the kills of a test."""
    return Killer()


def joined(tester: RunTester, cluster: SmallCluster, config: str, *flags: str) -> BackgroundRun:
    """A run on the cluster, in the background."""
    return BackgroundRun(tester, ("train", config, "--master_address", cluster.address, *flags), cluster.folder)
