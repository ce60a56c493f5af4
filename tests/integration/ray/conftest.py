"""One small Ray cluster for all tests of the folder, a project with an engine slow enough to be killed, and what must be left: nothing."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester
from tests.integration.ray.faults import BackgroundRun, Killer, processes_of, until

OURS = tuple(f"ray::{name}" for name in ("ProducerHost", "TrainerHost", "ScheduleService", "GroupStore", "JudgeHost", "WeightsBoard"))
ENGINE = Path(__file__).parent / "doomed_engine.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("fast"):
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="module")
def ray_dir() -> Iterator[Path]:
    """Where Ray keeps its files: a short path, for its sockets are in it."""
    folder = Path(tempfile.mkdtemp(prefix="rl", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Ray's nodes set a handler in the process that starts them, which drains them for 30 s."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class SmallCluster:
    """A head, and nodes that come and go, all on this machine."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self.folder = folder
        self._args = {"include_dashboard": False, "object_store_memory": 100 << 20}
        noticed = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
        head = {**self._args, "num_cpus": 4, "temp_dir": str(folder), "_system_config": noticed}
        with _own_sigterm():
            self._cluster = Cluster(initialize_head=True, head_node_args=head)

    @property
    def address(self) -> str:
        """What ``--master_address`` takes."""
        return str(self._cluster.address)

    def add(self, cpus: int) -> Any:
        """A node more."""
        with _own_sigterm():
            return self._cluster.add_node(num_cpus=cpus, **self._args)

    def remove(self, node: Any, *, graceful: bool = False) -> None:
        """A node less: its processes are killed."""
        self._cluster.remove_node(node, allow_graceful=graceful)

    def settle(self) -> None:
        """Wait until the cluster knows that it has but its head."""
        nodes = self._cluster.global_state.node_table
        until(lambda: sum(node["Alive"] for node in nodes()) == 1, "the cluster to notice that nodes are gone")

    def homes(self) -> dict[str, set[str]]:
        """The nodes of the actors that live, by class."""
        found: dict[str, set[str]] = {}
        for row in self._cluster.global_state.actor_table(None).values():
            if row["State"] == "ALIVE":
                found.setdefault(row["ActorClassName"], set()).add(row["Address"]["NodeID"])
        return found

    def leftovers(self) -> list[str]:
        """Actors that live, placement groups that hold something, and processes of both."""
        state = self._cluster.global_state
        actors = [f"actor {row['ActorClassName']}" for row in state.actor_table(None).values() if row["State"] != "DEAD"]
        groups = [f"placement group {row['state']}" for row in state.placement_group_table().values() if row["state"] != "REMOVED"]
        titles = [process.title for process in processes_of(self.folder)]
        processes = [title for title in titles if "rlcore" in title or title.startswith(OURS)]
        return actors + groups + processes

    def close(self) -> None:
        """End it."""
        self._cluster.shutdown()


@pytest.fixture(scope="module")  # not longer: tests of other folders count the children of their process
def _cluster(ray_dir: Path) -> Iterator[SmallCluster]:
    pytest.importorskip("ray", reason="Ray is not installed (extra dev)")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    cluster = SmallCluster(ray_dir)
    try:
        yield cluster
    finally:
        cluster.close()
        until(lambda: not processes_of(ray_dir), "the cluster's processes to end", 30.0)


@pytest.fixture
def cluster(_cluster: SmallCluster) -> Iterator[SmallCluster]:
    """The cluster, on which a test leaves neither actor nor placement group nor process."""
    before = shared_memory()
    yield _cluster
    _cluster.settle()
    until(lambda: not _cluster.leftovers(), lambda: f"these to end: {_cluster.leftovers()}", 30.0)
    no_new_shared_memory(before)


def shared_memory() -> set[Path]:
    """The files in /dev/shm."""
    return set(Path("/dev/shm").iterdir())


def no_new_shared_memory(before: set[Path]) -> None:
    """No file in /dev/shm that was not there before, save for those that others use, who live."""
    until(lambda: not [file for file in shared_memory() - before if not _in_use(file)], "shared memory to go", 30.0)


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
