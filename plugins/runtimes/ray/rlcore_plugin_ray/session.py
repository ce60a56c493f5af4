"""The connection to Ray: to a cluster that the run starts on this machine, or to an existing one. At its end it ends all actors of the
run."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType
from typing import Any, cast

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
from rlcore_plugin_workers.environments import Interpreters
from rlcore_plugin_workers.workers import Launcher, Placement, Worker

from rlcore.api import ConfigError
from rlcore.api.runtime import RunSection, RuntimeLostError, install_line
from rlcore_plugin_ray.cluster_address import signals_blocked, usable_folder
from rlcore_plugin_ray.cluster_head import ClusterHead
from rlcore_plugin_ray.node_placement import Node
from rlcore_plugin_ray.own_cluster import first_line, not_started
from rlcore_plugin_ray.ray_worker import BESIDE, RayWorker

__all__ = ["RayPlacement", "RaySession"]

_DASHBOARD = ("aiohttp", "aiohttp_cors", "opencensus", "opentelemetry", "prometheus_client")
"""Modules without which Ray starts no dashboard; Ray's extra ``default`` installs them."""


_CONNECT_SECONDS = 0.5
_CLOSE_SECONDS = 20.0
"""How long the end of all actors may take."""
_PART_SECONDS = 20.0
"""How long Ray may take to disconnect from a cluster."""
_BESIDE_CALLS = 8
"""The number of a worker's calls that may run in parallel with the others at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPlacement:
    """The ``place`` of a ``Placement``: a bundle of a placement group, its node, and the resources of its role."""

    node: str
    group: PlacementGroup
    bundle: int
    cpus: float
    gpus: float


class RaySession(Launcher):
    """A context manager: a connection to the cluster at ``address`` (None: this process is connected). The actors that it makes are killed
    when it ends."""

    def __init__(self, address: str | None, settings: RunSection, say: Callable[[str], None]) -> None:
        self._address = address
        self._settings = settings
        self._say = say
        self._actors: list[Any] = []
        self._groups: list[PlacementGroup] = []
        self._connected = contextlib.ExitStack()
        self._interpreters = Interpreters()
        self._run = uuid.uuid4().hex[:12]
        self._headless = False
        self.head: Worker
        """The head of the cluster, which the driver watches too."""

    def __enter__(self) -> RaySession:
        if self._address is None:
            dashboard = ray.init(ignore_reinit_error=True, configure_logging=False).dashboard_url
        else:
            try:
                dashboard = self._connect(self._address)
            except BaseException:
                ray.shutdown()
                raise
        self._say(f"Ray dashboard: http://{dashboard}" if dashboard else _no_dashboard())
        joined = self._settings.master_address or ("" if self._address else "this program")
        self.head = ClusterHead(joined, own=not joined, lost=self._head_lost)
        return self

    def _head_lost(self) -> None:
        self._headless = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the actors and placement groups. If the head is gone, skip this: calls to Ray would wait for it, and actors end with their
        driver."""
        if not self._headless:
            ending = threading.Thread(target=self._end_actors, name="ends actors", daemon=True)
            ending.start()
            ending.join(_CLOSE_SECONDS)
        with contextlib.closing(self._interpreters):
            self._connected.close()

    def _end_actors(self) -> None:
        for actor in self._actors:
            with contextlib.suppress(RayError):  # the error that ended the run is more useful
                ray.kill(actor)
        for group in self._groups:
            with contextlib.suppress(RayError):
                remove_placement_group(group)

    def _connect(self, address: str) -> str | None:
        """Return the address of the dashboard, if it exists."""
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "namespace": f"rlcore-{os.getpid()}"}
        if address == "local" and self._settings.ray_dir is not None:
            options["_temp_dir"] = str(usable_folder(self._settings.ray_dir))
        others = threading.enumerate()
        try:
            with signals_blocked():
                context = ray.init(address=address, **options)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            if address == "local":
                raise not_started(first_line(error)) from error
            raise ConfigError(
                f"the Ray cluster at {address} cannot be joined: {first_line(error)}; type --master_address HOST:PORT, as ray start "
                "--head prints it"
            ) from error
        self._connected.callback(self._disconnect)
        self._connected.enter_context(_muted([thread for thread in threading.enumerate() if thread not in others]))
        return context.dashboard_url or None

    def _disconnect(self) -> None:
        """Disconnect from the cluster.

        If the head or this machine's daemon is stopped, Ray waits for it for ever, here and again at the exit of Python, and then crashes.
        Raise RuntimeLostError if the run cannot start again in this process, unless the loss of the head was reported.
        """
        parting = threading.Thread(target=ray.shutdown, name="leaves Ray", daemon=True)
        with _muted([parting]):  # Ray prints the repeated reports that it held back
            parting.start()
            parting.join(_PART_SECONDS)
        if not parting.is_alive():
            return
        atexit.unregister(ray.shutdown)
        atexit.register(_end_at_once, parting)
        if not self._headless:
            raise RuntimeLostError(
                f"the Ray daemon of this machine does not answer, so this process could not leave Ray within {_PART_SECONDS:g} s; end the "
                "daemon, start a cluster, and type the command again with --resume auto"
            )

    def nodes(self) -> list[Node]:
        """Return the nodes that are alive, the driver's first. Ray needs half a minute to notice that a node is gone. So check at once
        whether its host refuses a connection to the Ray daemon."""
        own = ray.get_runtime_context().get_node_id()
        alive = [node for node in ray.nodes() if node["Alive"] and (node["NodeID"] == own or not _refuses(node))]
        views = [
            Node(
                node_id=node["NodeID"],
                address=node["NodeManagerAddress"],
                cpus=float(node["Resources"].get("CPU", 0.0)),
                gpus=float(node["Resources"].get("GPU", 0.0)),
            )
            for node in alive
        ]
        return sorted(views, key=lambda node: (node.node_id != own, node.node_id))

    def reserve(self, bundles: Sequence[tuple[str | None, float, float]], seconds: float = 60.0) -> PlacementGroup:
        """Reserve one bundle for each (node, cpus, gpus), all or none. If a node is None, Ray chooses it. Raise ConfigError if the cluster
        does not have the resources free in time."""
        resources = [{"CPU": cpus, **({"GPU": gpus} if gpus else {})} for _, cpus, gpus in bundles]
        labels = [{"ray.io/node-id": node} if node is not None else {} for node, _, _ in bundles]
        group = placement_group(resources, strategy="PACK", bundle_label_selector=labels)
        if not group.wait(seconds):
            remove_placement_group(group)
            total = {name: sum(bundle.get(name, 0.0) for bundle in resources) for name in ("CPU", "GPU")}
            raise ConfigError(
                f"the Ray cluster does not have {total['CPU']:g} CPU cores and {total['GPU']:g} GPUs free within {seconds:g} s: other jobs "
                "use them; end these jobs, or lower -t and -i"
            )
        self._groups.append(group)
        return group

    def home(self, group: PlacementGroup, bundle: int) -> str:
        """Return the id of the node that holds a bundle."""
        node: str = placement_group_table(group)["bundles_to_node_id"][bundle]
        return node

    def start(self, host: type, *arguments: Any, name: str, placement: Placement) -> Worker:
        """Make an actor of a role in its bundle (``placement.place`` is a ``RayPlacement``). Ray does not restart it."""
        place: RayPlacement = placement.place
        strategy = PlacementGroupSchedulingStrategy(placement_group=place.group, placement_group_bundle_index=place.bundle)
        python, variables = self._interpreters.of(placement.environment)
        made = ray.remote(concurrency_groups={BESIDE: _BESIDE_CALLS})(host).options(
            num_cpus=place.cpus,
            num_gpus=place.gpus,
            max_restarts=0,
            max_concurrency=placement.calls,
            scheduling_strategy=strategy,
            runtime_env={"py_executable": python, "env_vars": variables} if placement.environment is not None else None,
        )
        return RayWorker(self._keep(made.remote(*arguments)), name, self._kill)

    def service(self, host: type, *arguments: Any, node: str, called: str, restarts: int = 0, **named: Any) -> Any:
        """Return an actor on one node that reserves no resources. With ``restarts``, Ray restarts it and repeats the calls in progress."""
        options = {
            "num_cpus": 0,
            "max_restarts": restarts,
            "max_task_retries": restarts,
            "max_concurrency": 10_000,
            "name": self.unique(called),
        }
        strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        return self._keep(ray.remote(host).options(scheduling_strategy=strategy, **options).remote(*arguments, **named))

    def _kill(self, actor: Any) -> None:
        if actor in self._actors:
            ray.kill(actor)
            self._actors.remove(actor)

    def restart(self, actor: Any) -> None:
        """Kill a service that Ray then restarts."""
        ray.kill(actor, no_restart=False)

    def unique(self, called: str) -> str:
        """Return a name for a service that is unique in Ray, because several runs may share a cluster."""
        return f"{called} of rlcore {self._run}"

    def _keep(self, actor: Any) -> Any:
        self._actors.append(actor)
        return actor


def _refuses(node: Mapping[str, Any]) -> bool:
    """Return whether the node's host refuses a connection to the Ray daemon. A host that does not answer may be slow."""
    try:
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), _CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _end_at_once(parting: threading.Thread) -> None:
    """End this process without Ray's exit handlers, if Ray is still not disconnected. The exit code reports a failed run, whatever the
    program intended: Python does not pass it to exit handlers."""
    if parting.is_alive():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def _no_dashboard() -> str:
    if any(find_spec(name) is None for name in _DASHBOARD):
        return f"Ray runs without its dashboard, which is not installed: {install_line('rlcore[ray]')}"
    return "Ray runs without its dashboard, which did not start"


class _Output:
    """A text stream that drops the output of some threads."""

    def __init__(self, stream: Any, dropped: Collection[threading.Thread]) -> None:
        self._stream = stream
        self._dropped = dropped

    def write(self, text: str) -> int:
        return len(text) if threading.current_thread() in self._dropped else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _muted(threads: Collection[threading.Thread]) -> Iterator[None]:
    """Drop the output of these threads. Ray's threads print the nodes' reports of dead workers, whatever ``log_to_driver`` says; the run
    itself reports these deaths."""
    before: Any = sys.stdout
    sys.stdout = ours = cast("Any", _Output(before, threads))
    try:
        yield
    finally:
        if sys.stdout is ours:
            sys.stdout = before
