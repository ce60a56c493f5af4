"""The connection to Ray: a cluster of its own on this machine, or one that runs. On leaving nothing that was started lives on."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from rlcore.api import ConfigError
from rlcore.api.runtime import RunSection, install_line
from rlcore_plugin_ray.joining import apart, head_address, signals_held, usable_folder
from rlcore_plugin_ray.node_placement import Node

__all__ = ["Seat", "Session"]

_DASHBOARD = ("aiohttp", "aiohttp_cors", "opencensus", "opentelemetry", "prometheus_client")
"""Modules without which Ray starts no dashboard; its extra ``default`` brings them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A bundle of a placement group, and what its role takes of it."""

    group: PlacementGroup
    bundle: int
    cpus: float
    gpus: float


class Session:
    """A context. Actors that it makes are killed when it ends."""

    def __init__(self, settings: RunSection, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._actors: list[Any] = []
        self._names: dict[str, str] = {}
        self._groups: list[PlacementGroup] = []
        self._joined = False
        self._run = uuid.uuid4().hex[:12]

    def __enter__(self) -> Session:
        self._joined = ray.is_initialized()
        try:
            if not self._joined:
                self._connect()
        except BaseException:
            ray.shutdown()
            raise
        dashboard = ray.get_runtime_context().worker.node.address_info.get("webui_url") if ray.is_initialized() else None
        self._say(f"Ray dashboard: http://{dashboard}" if dashboard else _no_dashboard())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for actor in self._actors:
            with suppress(RayError):  # the head may be gone, and what ended the run is the error to see
                ray.kill(actor)
        for group in self._groups:
            with suppress(RayError):
                remove_placement_group(group)
        if not self._joined:
            ray.shutdown()

    def _connect(self) -> None:
        settings = self._settings
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Without it Ray hides the GPUs from actors that reserve none, and warns that it will stop doing so.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "namespace": f"rlcore-{os.getpid()}"}
        address = settings.master_address and head_address(settings.master_address)
        if address is None and settings.ray_dir is not None:
            options["_temp_dir"] = str(usable_folder(settings.ray_dir))
        try:
            with signals_held(), apart():
                ray.init(address=address or "local", **options)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            if address is None:
                raise ConfigError(f"no Ray cluster can be started here: {first}; --ray-dir names another folder for its files") from error
            raise ConfigError(
                f"the Ray cluster at {address} cannot be joined: {first}; type --master_address HOST:PORT, as ray start --head says"
            ) from error
        # Ray prints on standard output what its nodes report of dead workers, whatever log_to_driver says; the run says it itself.
        ray._private.worker._worker_logs_enabled = False

    def nodes(self) -> list[Node]:
        """The nodes that live, the driver's first."""
        own = ray.get_runtime_context().get_node_id()
        alive = [node for node in ray.nodes() if node["Alive"]]
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

    def reserve(self, bundles: list[tuple[str, float, float]], seconds: float = 60.0) -> PlacementGroup:
        """One bundle each of (node, cpus, gpus), all or none. ConfigError where the cluster has not that much free in time."""
        resources = [{"CPU": cpus, **({"GPU": gpus} if gpus else {})} for _, cpus, gpus in bundles]
        labels = [{"ray.io/node-id": node} for node, _, _ in bundles]
        group = placement_group(resources, strategy="PACK", bundle_label_selector=labels)
        if not group.wait(seconds):
            remove_placement_group(group)
            total = {name: sum(bundle.get(name, 0.0) for bundle in resources) for name in ("CPU", "GPU")}
            raise ConfigError(
                f"the Ray cluster does not give {total['CPU']:g} CPU cores and {total['GPU']:g} GPUs within {seconds:g} s: other jobs "
                "hold them; end those, or lower -t and -i"
            )
        self._groups.append(group)
        return group

    def actor(self, cls: type, *args: Any, seat: Seat, called: str, threads: int = 1) -> Any:
        """An actor of a role, in its bundle; errors name it as ``called``. Ray does not start it anew. Its calls of the concurrency groups
        ``life`` and ``mail`` run beside the others."""
        options = {"num_cpus": seat.cpus, "num_gpus": seat.gpus, "max_restarts": 0, "max_concurrency": threads}
        strategy = PlacementGroupSchedulingStrategy(placement_group=seat.group, placement_group_bundle_index=seat.bundle)
        made = ray.remote(concurrency_groups={"life": 1, "mail": 1})(cls)
        return self._keep(made.options(scheduling_strategy=strategy, **options).remote(*args), called)

    def service(self, cls: type, *args: Any, node: str, called: str, restarts: int = 0, **named: Any) -> Any:
        """An actor that reserves nothing, on one node; with ``restarts`` Ray starts it anew and repeats the calls that were under way."""
        options = {
            "num_cpus": 0,
            "max_restarts": restarts,
            "max_task_retries": restarts,
            "max_concurrency": 10_000,
            "name": self.unique(called),
        }
        strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        return self._keep(ray.remote(cls).options(scheduling_strategy=strategy, **options).remote(*args, **named), called)

    def kill(self, actor: Any) -> None:
        """End an actor now."""
        ray.kill(actor)
        self._actors.remove(actor)

    def unique(self, called: str) -> str:
        """The name that Ray knows a service by: several runs may share a cluster."""
        return f"{called} of rlcore {self._run}"

    def finish(self, refs: list[Any], seconds: float) -> list[Any]:
        """The last answers of those who live, as far as they come in time; never raises."""
        if not refs:
            return []
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=seconds)
        answers = []
        for ref in ready:
            with suppress(RayError):
                answers.append(ray.get(ref))
        return answers

    def dead(self, error: BaseException) -> str:
        """What the actor is called whose death an error reports."""
        return self._names.get(str(getattr(error, "actor_id", "")), "an actor")

    def _keep(self, actor: Any, called: str) -> Any:
        self._actors.append(actor)
        self._names[actor._actor_id.hex()] = called
        return actor


def _no_dashboard() -> str:
    if any(find_spec(name) is None for name in _DASHBOARD):
        return f"Ray runs without its dashboard, which is not installed: {install_line('rlcore[ray]')}"
    return "Ray runs without its dashboard, which did not come up"
