"""A Ray cluster of several raylets on this machine, each started by ``ray start``; one of them may have a network of its own, whose link
can be taken down. Everything that it writes is in one folder, and nothing of it is left at the end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.chaos.processes import Process, end_all, everybody
from tests.integration.ray.faults import processes_of

__all__ = ["Link", "Raylets", "linked"]

_RAY = "from importlib.metadata import entry_points; (ray,) = entry_points(group='console_scripts', name='ray'); ray.load()()"
_STORE_BYTES = 100 << 20
_HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 4,
}
"""A node that does not answer is dead after some six seconds; by Ray's own settings it takes half a minute."""
_START_SECONDS = 200.0
_TRIES = 3
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "60",
    "RAY_worker_niceness": "0",
}


class Raylets:
    """Nodes by name; ``head`` is there from the beginning, with no core for roles. ``host``: the address of all but those of a link."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self._folder, self._host = folder, host
        self._started = 0
        folder.mkdir(exist_ok=True)
        self.head()

    def head(self) -> None:
        """Start a new head; one that was there before must be gone. Its files are in a folder of their own."""
        self._started += 1
        self.folder = self._folder / f"r{self._started}"
        self.folder.mkdir()
        self._nodes: dict[str, int] = {}
        self.address = f"{self._host}:{_free_port()}"
        port = self.address.rpartition(":")[2]
        settings = [
            "--head",
            "--port",
            port,
            "--temp-dir",
            str(self.folder),
            "--system-config",
            json.dumps(_HEALTH),
            "--include-dashboard",
            "false",
        ]
        self._start("head", 0, settings, self._host)

    def add(self, name: str, cpus: int, link: Link | None = None) -> None:
        """A node more, in the network of ``link`` if there is one."""
        host = self._host if link is None else link.inside
        self._start(name, cpus, ["--address", self.address], host, () if link is None else link.prefix)

    def _start(self, name: str, cpus: int, settings: Sequence[str], host: str, prefix: Sequence[str] = ()) -> None:
        """On a machine that is busy a raylet gives up now and then: its agents have 15 s to start."""
        command = [*prefix, sys.executable, "-P", "-c", _RAY, "start", *settings, "--node-ip-address", host, "--num-cpus", str(cpus)]
        command += ["--object-store-memory", str(_STORE_BYTES), "--disable-usage-stats"]
        log = self.folder / f"start-{name}.log"
        for _ in range(_TRIES):
            before = self.pids
            with log.open("ab") as said:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    env={**os.environ, **_ENVIRONMENT, "RAY_TMPDIR": str(self._folder)},
                    timeout=_START_SECONDS,
                    start_new_session=True,
                    check=False,
                )
            new = self.pids - before
            if done.returncode == 0 and len(new) == 1:
                (self._nodes[name],) = new
                return
            for pid in new:
                self._end(pid)
        raise RuntimeError(f"no raylet {name}: exit code {done.returncode}\n{log.read_text()}")

    def raylets(self) -> list[Process]:
        """The raylets of this cluster that live."""
        return [process for process in everybody() if "/raylet/raylet " in process.title and f"{self.folder}/" in process.title]

    @property
    def pids(self) -> set[int]:
        """Of the raylets that live."""
        return {process.pid for process in self.raylets()}

    def has_head(self) -> bool:
        """Whether the raylet of the head lives and is not stopped."""
        return any(process.pid == self._nodes["head"] and process.state not in "TZ" for process in self.raylets())

    @property
    def names(self) -> list[str]:
        """Of the nodes that were started and not forgotten."""
        return list(self._nodes)

    def node(self, name: str) -> Process:
        """The raylet of a node."""
        return next(process for process in self.raylets() if process.pid == self._nodes[name])

    def name_of(self, process: Process) -> str:
        """The node of a process that a raylet started."""
        return next((name for name, pid in self._nodes.items() if pid == process.parent), "?")

    @property
    def gcs(self) -> Process:
        """The server that knows the cluster."""
        return next(process for process in everybody() if "/gcs/gcs_server " in process.title and f"{self.folder}/" in process.title)

    def forget(self, name: str) -> None:
        """End what is left of a node that was killed, stopped or cut off: its raylet and all that it started."""
        self._end(self._nodes.pop(name))

    def _end(self, pid: int) -> None:
        for process in everybody():
            if (process.pid == pid and f"{self.folder}/" in process.title) or process.parent == pid:
                process.signal(signal.SIGKILL)

    def close(self) -> list[str]:
        """End all of it; the titles of what was still there after what had a parent was told to end."""
        found = [Process(process.pid, 0, "", process.title) for process in processes_of(self.folder)]
        list(end_all(lambda: [Process(process.pid, 0, "", process.title) for process in processes_of(self.folder)]))
        return [process.title for process in found]


class Link:
    """A network namespace with a cable to this machine's own: ``outside`` is the address of this end, ``inside`` of the other."""

    def __init__(self, name: str, number: int) -> None:
        self._name, self._cable = name, f"{name}-in"
        self.outside, self.inside = f"10.213.{number}.1", f"10.213.{number}.2"
        self.prefix = ("ip", "netns", "exec", name)
        for words in (
            f"netns add {name}",
            f"link add {name}-out type veth peer name {name}-in netns {name}",
            f"addr add {self.outside}/24 dev {name}-out",
            f"link set {name}-out up",
            f"-n {name} addr add {self.inside}/24 dev {name}-in",
            f"-n {name} link set lo up",
            f"-n {name} link set {name}-in up",
        ):
            _ip(*words.split())

    def down(self) -> None:
        """Nothing passes from here on; nobody is told."""
        _ip("-n", self._name, "link", "set", self._cable, "down")

    def up(self) -> None:
        """As before."""
        _ip("-n", self._name, "link", "set", self._cable, "up")

    def close(self) -> None:
        """Remove both ends."""
        with suppress(RuntimeError):
            _ip("netns", "del", self._name)
        with suppress(RuntimeError):
            _ip("link", "del", f"{self._name}-out")


@contextmanager
def linked() -> Iterator[Link]:
    """A link of this process's own. RuntimeError if this is not root, or ``ip`` is not installed."""
    number = os.getpid() % 250
    link = Link(f"chaos{number}", number)
    try:
        yield link
    finally:
        link.close()


def _ip(*words: str) -> None:
    try:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise RuntimeError("ip is not installed: apt-get install iproute2") from error
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"ip {' '.join(words)}: {error.stderr.strip()}") from error


def _free_port() -> int:
    """Between those of the workers of Ray and those that the kernel hands out; gRPC would share a port that is taken."""
    while True:
        port = random.randint(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port
