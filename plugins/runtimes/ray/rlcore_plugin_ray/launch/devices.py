"""Which nodes a run takes, and whether it can be placed on those that were asked for, by the rule that places it there."""

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
    """Equal nodes: how many, and the devices and cores of each. ``gpus`` 0: the run computes on its cores."""

    nodes: int
    gpus: int
    cpus: int


def _needed(config: RunConfig) -> int:
    """Split: a GPU for every trainer rank and every shard of a producer; colocated: they share."""
    trainers, producers = (int(role.count * role.gpus) for role in roles(config))
    return max(trainers, producers) if config.run.placement == "colocated" else trainers + producers


def _place(config: RunConfig, nodes: int, gpus: int) -> None:
    """ConfigError where so many nodes of so many GPUs cannot hold the run; more nodes than roles make no difference."""
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
    """The fewest GPUs a node with which so many nodes hold the run; 0 where it needs none. ConfigError where none would do."""
    needed = _needed(config)
    if needed == 0:
        return 0
    _place(config, 1, needed)
    whole = max(int(role.gpus) for role in roles(config))
    return next(gpus for gpus in count(max(-(-needed // nodes), whole)) if _fits(config, nodes, gpus))


def machines_for(config: RunConfig, nodes: int | None, gpus: int | None, cpus: int | None) -> Machines:
    """What was asked for, completed: one node; just enough GPUs a node (none where both devices are ``cpu``); 8 cores a GPU, at least 8."""
    nodes = nodes or 1
    gpus = _least_gpus(config, nodes) if gpus is None else gpus
    return Machines(nodes=nodes, gpus=gpus, cpus=cpus or max(1, gpus) * _CORES_A_DEVICE)


def check_machines(config: RunConfig, machines: Machines) -> None:
    """ConfigError where the nodes cannot hold the run; a run on cores is not counted."""
    needed, have = _needed(config), machines.nodes * machines.gpus
    if machines.gpus == 0 or needed == 0 or (needed <= have and _fits(config, machines.nodes, machines.gpus)):
        return
    _place(config, 1, needed)
    several = machines.nodes > 1
    short = f"ha{'ve' if several else 's'} {have}" if needed > have else "cannot hold them: those of one producer are on one node"
    raise ConfigError(
        f"the run needs {needed} GPUs ({_parts(config)}), and {machines.nodes} node{'s' * several} of {machines.gpus} {short}; "
        f"type {_advice(config, machines)}, or a smaller -t, -i or -ptp"
    )


def _parts(config: RunConfig) -> str:
    trainers, producers = roles(config)
    each = f" of {producers.gpus:g} each" if producers.gpus > 1 else ""
    return f"{trainers.count * trainers.gpus:g} for trainers, {producers.count * producers.gpus:g} for producers{each}"


def _advice(config: RunConfig, machines: Machines) -> str:
    """As many of these nodes as hold the run, counted at once (``place`` walks through all of them); larger ones for larger producers."""
    trainers, producers = roles(config)
    ranks, whole, gpus = int(trainers.count * trainers.gpus), int(producers.gpus), machines.gpus
    if whole > gpus:
        return f"--gpus-per-node {_least_gpus(config, machines.nodes)}"
    nodes = -(-ranks // gpus)
    if whole and config.run.placement == "split":
        beside = (nodes * gpus - ranks) // whole
        nodes += -(-max(0, producers.count - beside) // (gpus // whole))
    return f"--nodes {nodes}"
