"""How many devices a run takes, and whether the nodes that were asked for have them."""

from __future__ import annotations

from dataclasses import dataclass

from rlcore.config import RunConfig
from rlcore.errors import ConfigError

__all__ = ["Machines", "check_machines", "machines_for"]

_CORES_A_DEVICE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Equal nodes: how many, and the devices and cores of each. ``gpus`` 0: the run computes on its cores."""

    nodes: int
    gpus: int
    cpus: int


def _devices(config: RunConfig) -> tuple[int, int]:
    """(devices of all trainers, devices of all producers)"""
    return config.training.num_trainers, config.inference.num_inferencer * config.inference.producer_tensor_parallel_size


def _needed(config: RunConfig) -> int:
    """Split: a device for every trainer rank and every shard of a producer; colocated: they share."""
    trainers, producers = _devices(config)
    return max(trainers, producers) if config.run.placement == "colocated" else trainers + producers


def _on_cores(config: RunConfig) -> bool:
    return config.training.device == "cpu" and config.inference.device == "cpu"


def machines_for(config: RunConfig, nodes: int | None, gpus: int | None, cpus: int | None) -> Machines:
    """What was asked for, completed: one node; just enough GPUs a node (none where both devices are ``cpu``); 8 cores a GPU, at least 8."""
    nodes = nodes or 1
    if gpus is None:
        gpus = 0 if _on_cores(config) else -(-_needed(config) // nodes)
    return Machines(nodes=nodes, gpus=gpus, cpus=cpus or max(1, gpus) * _CORES_A_DEVICE)


def check_machines(config: RunConfig, machines: Machines) -> None:
    """ConfigError where the run needs more GPUs than the nodes have; a run on cores is not counted."""
    needed, have = _needed(config), machines.nodes * machines.gpus
    if machines.gpus == 0 or needed <= have:
        return
    trainers, producers = _devices(config)
    size = config.inference.producer_tensor_parallel_size
    parts = f"{trainers} for trainers, {producers} for producers" + (f" of {size} each" if size > 1 else "")
    raise ConfigError(
        f"the run needs {needed} GPUs ({parts}), and {machines.nodes} node{'s' * (machines.nodes > 1)} of {machines.gpus} "
        f"ha{'ve' if machines.nodes > 1 else 's'} {have}; type --nodes {-(-needed // machines.gpus)}, or a smaller -t or -i"
    )
