"""The nodes of a run, and the check that the requested nodes can hold it. Both use the placement rule of the run itself."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from rlcore.api import ConfigError
from rlcore.api.runtime import RunConfig
from rlcore_plugin_ray.node_placement import Node, place, roles

__all__ = ["Machines", "check_machines", "machines_for"]

_CORES_A_DEVICE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """A number of equal nodes, with the devices and cores of each one. If ``gpus`` is 0, the run computes on CPU cores."""

    nodes: int
    gpus: int
    cpus: int


def _needed(config: RunConfig) -> int:
    """Return the GPUs of the run. Split: one for every trainer rank and every shard of a producer. Colocated: the roles share them."""
    trainers, producers = (int(role.count * role.gpus) for role in roles(config))
    return max(trainers, producers) if config.run.placement == "colocated" else trainers + producers


def _place(config: RunConfig, nodes: int, gpus: int) -> None:
    """Raise ConfigError if ``nodes`` nodes of ``gpus`` GPUs cannot hold the run. More nodes than roles make no difference."""
    trainers, producers = roles(config)
    several = range(min(nodes, trainers.count + producers.count))
    views = [Node(node_id=f"{number:06}", address="", cpus=float(_CORES_A_DEVICE), gpus=float(gpus)) for number in several]
    place(views, trainers=trainers, producers=producers, colocated=config.run.placement == "colocated")


def _fits(config: RunConfig, nodes: int, gpus: int) -> bool:
    try:
        _place(config, nodes, gpus)
    except ConfigError:
        return False
    return True


def _least_gpus(config: RunConfig, nodes: int) -> int:
    """Return the smallest number of GPUs on each of ``nodes`` nodes that can hold the run; 0 if it needs no GPUs. Raise ConfigError if no
    number can."""
    needed = _needed(config)
    if needed == 0:
        return 0
    _place(config, 1, needed)
    whole = max(int(role.gpus) for role in roles(config))
    return next(gpus for gpus in count(max(-(-needed // nodes), whole)) if _fits(config, nodes, gpus))


def machines_for(config: RunConfig, nodes: int | None, gpus: int | None, cpus: int | None) -> Machines:
    """Complete the request. The defaults are one node, just enough GPUs on each node (none if both devices are ``cpu``), and 8 cores for
    each GPU, at least 8."""
    nodes = nodes or 1
    gpus = _least_gpus(config, nodes) if gpus is None else gpus
    return Machines(nodes=nodes, gpus=gpus, cpus=cpus or max(1, gpus) * _CORES_A_DEVICE)


def check_machines(config: RunConfig, machines: Machines) -> None:
    """Raise ConfigError if the nodes cannot hold the run; a run on CPU cores is not checked."""
    needed, have = _needed(config), machines.nodes * machines.gpus
    if machines.gpus == 0 or needed == 0 or (needed <= have and _fits(config, machines.nodes, machines.gpus)):
        return
    _place(config, 1, needed)
    several = machines.nodes > 1
    short = f"ha{'ve' if several else 's'} {have}" if needed > have else "cannot hold them: the GPUs of one producer must be on one node"
    raise ConfigError(
        f"the run needs {needed} GPUs ({_parts(config)}), and {machines.nodes} node{'s' * several} of {machines.gpus} {short}; "
        f"type {_advice(config, machines)}, or a smaller -t, -i or -ptp"
    )


def _parts(config: RunConfig) -> str:
    trainers, producers = roles(config)
    each = f" of {producers.gpus:g} each" if producers.gpus > 1 else ""
    return f"{trainers.count * trainers.gpus:g} for trainers, {producers.count * producers.gpus:g} for producers{each}"


def _advice(config: RunConfig, machines: Machines) -> str:
    """Return flags that make the run fit: more nodes of this size, or more GPUs on each node for larger producers. The number of nodes is
    computed directly, because ``place`` would iterate over all of them."""
    trainers, producers = roles(config)
    ranks, whole, gpus = int(trainers.count * trainers.gpus), int(producers.gpus), machines.gpus
    if whole > gpus:
        return f"--gpus-per-node {_least_gpus(config, machines.nodes)}"
    nodes = -(-ranks // gpus)
    if whole and config.run.placement == "split":
        beside = (nodes * gpus - ranks) // whole
        nodes += -(-max(0, producers.count - beside) // (gpus // whole))
    return f"--nodes {nodes}"
