"""A small Ray cluster on this machine whose files are all in one folder, and of which nothing is left, whatever fails."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.integration.ray.faults import processes_of, until

__all__ = ["SmallCluster", "end_processes", "short_folder", "small_cluster"]

OURS = tuple(
    f"ray::{name}" for name in ("ProducerWorker", "TrainerWorker", "ScheduleActor", "GroupStore", "JudgeActor", "WeightsRendezvous")
)


def is_ours(title: str) -> bool:
    """Whether a command line is of an actor or a worker of rlcore. Paths say nothing: Ray may run from a checkout called rlcore."""
    return title.startswith(OURS) or any("rlcore" in word for word in title.split() if "/" not in word)


@contextmanager
def short_folder() -> Iterator[Path]:
    """Where a Ray keeps its files: a short path, for its sockets are in it."""
    folder = Path(tempfile.mkdtemp(prefix="rl", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def small_cluster(folder: Path) -> Iterator[SmallCluster]:
    """A cluster with its files in ``folder``; on leaving its processes end by themselves, or the test fails and they are killed."""
    try:
        with SmallCluster(folder) as cluster:
            yield cluster
        until(lambda: not processes_of(folder), lambda: f"these processes of the cluster to end: {processes_of(folder)}", 60.0)
    finally:
        end_processes(folder)


def end_processes(folder: Path) -> None:
    """Kill every process of the Ray in ``folder``. After a failed start Ray no longer tracks some of them."""
    while victims := processes_of(folder):
        for victim in victims:
            with suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
        for victim in victims:
            with suppress(ChildProcessError):  # another's child, which reaps it
                os.waitpid(victim.pid, 0)


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Ray's nodes set a handler in the process that starts them, which drains them for 30 s."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _default_folder(folder: Path) -> Iterator[None]:
    """Ray's default folder below ``folder``: whatever folder its head is given, ``Cluster`` notes the head's address in the default one,
    which is made by ``ray.init`` alone and shared by every Ray of the machine."""
    before = os.environ.get("RAY_TMPDIR")
    (folder / "ray").mkdir(exist_ok=True)
    os.environ["RAY_TMPDIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["RAY_TMPDIR"]
        else:
            os.environ["RAY_TMPDIR"] = before


class SmallCluster:
    """A head, and nodes that come and go, all on this machine. A context: the head starts when it is entered."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self.folder = folder
        # `Cluster` asks for port 8265 unless it is told None, which is "any free one" (as in `ray.init`): tests beside us may hold it.
        self._args = {"include_dashboard": False, "dashboard_port": None, "object_store_memory": 100 << 20}
        self._cluster = Cluster()

    def __enter__(self) -> SmallCluster:
        noticed = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
        self._add(num_cpus=4, temp_dir=str(self.folder), _system_config=noticed)
        return self

    def __exit__(self, *error: object) -> None:
        with _default_folder(self.folder):
            self._cluster.shutdown()

    @property
    def address(self) -> str:
        """What ``--master_address`` takes."""
        return str(self._cluster.address)

    def add(self, cpus: int) -> Any:
        """A node more."""
        return self._add(num_cpus=cpus)

    def _add(self, **args: Any) -> Any:
        with _own_sigterm(), _default_folder(self.folder):
            return self._cluster.add_node(**self._args, **args)

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
        return actors + groups + [process.title for process in processes_of(self.folder) if is_ours(process.title)]
