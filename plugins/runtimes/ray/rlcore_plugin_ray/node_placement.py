"""The placement of roles on nodes: a pure decision over the available nodes, and the placement group for it.

Trainers share as few nodes as possible. Producers are spread evenly over the nodes without trainers, as long as there is room. Devices are
GPUs if the cluster has them, and shares of its CPU cores otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlcore.api import ConfigError
from rlcore.api.runtime import RunConfig

__all__ = ["ClusterPlacement", "Node", "RoleNeeds", "place", "roles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of the cluster: its id, its address, and its total resources."""

    node_id: str
    address: str
    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleNeeds:
    """The number of workers of a role, and the GPUs of each one."""

    count: int
    gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlacement:
    """The node of every trainer rank and of every producer, and the resources that each one reserves: GPUs, or a share of CPU cores."""

    trainers: tuple[str, ...]
    producers: tuple[str, ...]
    cpus: float
    trainer_gpus: float
    producer_gpus: float

    colocated: bool = False

    @property
    def bundles(self) -> list[tuple[str, float, float]]:
        """The bundles of the placement group, each (node, cpus, gpus), those of the trainers first. Colocated producers share the bundle,
        and so the device, of a trainer."""
        if not self.colocated:
            trainers = [(node, self.cpus, self.trainer_gpus) for node in self.trainers]
            return trainers + [(node, self.cpus, self.producer_gpus) for node in self.producers]
        guests = [len(range(rank, len(self.producers), len(self.trainers))) for rank in range(len(self.trainers))]
        return [
            (node, self.cpus * (1 + several), self.trainer_gpus + self.producer_gpus * several)
            for node, several in zip(self.trainers, guests, strict=True)
        ]

    def producer_bundle(self, number: int) -> int:
        """Return the index of a producer's bundle. A trainer's index is its rank."""
        return number % len(self.trainers) if self.colocated else len(self.trainers) + number


def roles(config: RunConfig) -> tuple[RoleNeeds, RoleNeeds]:
    """Return the needs of (trainers, producers): one GPU for each trainer rank and for each shard of a producer, unless they run on CPU
    cores."""
    training, inference = config.training, config.inference
    shards = inference.producer_tensor_parallel_size
    return (
        RoleNeeds(count=training.num_trainers, gpus=float(training.device != "cpu")),
        RoleNeeds(count=inference.num_inferencer, gpus=float((inference.device != "cpu") * shards)),
    )


def place(nodes: Sequence[Node], *, trainers: RoleNeeds, producers: RoleNeeds, colocated: bool = False) -> ClusterPlacement:
    """Place the roles on nodes. ``colocated``: producers share the devices of the trainers. Raise ConfigError if there are too few GPUs."""
    if not nodes:
        raise ConfigError("the Ray cluster has no live node")
    if any(node.gpus >= 1 for node in nodes) and (trainers.gpus or producers.gpus):
        return _on_gpus(nodes, trainers, producers, colocated)
    usable = sorted((node for node in nodes if node.cpus > 0), key=lambda node: (-node.cpus, node.node_id)) or list(nodes)
    if colocated or len(usable) == 1:
        trainer_nodes = [usable[0]]
        producer_nodes = usable if not colocated else trainer_nodes
    else:
        trainer_nodes, producer_nodes = usable[:1], usable[1:]
    homes = tuple(trainer_nodes[rank % len(trainer_nodes)].node_id for rank in range(trainers.count))
    hosts = tuple(producer_nodes[number % len(producer_nodes)].node_id for number in range(producers.count))
    cpus = _cpu_share(usable, (*homes, *hosts))
    return ClusterPlacement(trainers=homes, producers=hosts, cpus=cpus, trainer_gpus=0.0, producer_gpus=0.0, colocated=colocated)


def _on_gpus(nodes: Sequence[Node], trainers: RoleNeeds, producers: RoleNeeds, colocated: bool) -> ClusterPlacement:
    free = {node.node_id: node.gpus for node in sorted(nodes, key=lambda node: (-node.gpus, node.node_id))}
    have = sum(free.values())
    homes = tuple(_take(free, trainers.gpus, list(free)) for _ in range(trainers.count))
    if colocated and (producers.gpus > trainers.gpus or producers.count > trainers.count):
        raise ConfigError(
            f"--placement colocated puts a producer on each trainer's GPU: {producers.count} producers of {producers.gpus:g} GPUs do not "
            f"fit onto {trainers.count} trainers; type -i {trainers.count} -ptp 1, or --placement split"
        )
    if colocated:
        hosts = tuple(homes[number % trainers.count] if homes[number % trainers.count] else None for number in range(producers.count))
    else:
        hosts = tuple(_take(free, producers.gpus, _producer_order(free, homes)) for _ in range(producers.count))
    if None in homes or None in hosts:
        need = trainers.count * trainers.gpus + (0 if colocated else producers.count * producers.gpus)
        raise ConfigError(
            f"{trainers.count} trainers and {producers.count} producers need {need:g} GPUs (those of one producer on one node), and the "
            f"Ray cluster has {have:g} on {len(free)} nodes; lower -t, -i or -ptp, type --placement colocated, or add nodes"
        )
    share = 0.5 if colocated else 1.0
    return ClusterPlacement(
        trainers=tuple(filter(None, homes)),
        producers=tuple(filter(None, hosts)),
        cpus=_cpu_share(nodes, tuple(filter(None, (*homes, *hosts)))),
        trainer_gpus=trainers.gpus * share,
        producer_gpus=trainers.gpus * share if colocated else producers.gpus,
        colocated=colocated,
    )


def _producer_order(free: dict[str, float], trainer_nodes: Sequence[str | None]) -> list[str]:
    """Return the nodes, those without trainers first, and among these the ones with the most free GPUs first."""
    return sorted(free, key=lambda node: (node in trainer_nodes, -free[node], node))


def _take(free: dict[str, float], gpus: float, order: Sequence[str]) -> str | None:
    chosen = next((node for node in order if free[node] >= gpus), None)
    if chosen is not None:
        free[chosen] -= gpus
    return chosen


def _cpu_share(nodes: Sequence[Node], homes: Sequence[str]) -> float:
    """Return the CPU share of each role, the same for all: one core if there are enough, else the share that the fullest node can give."""
    share = min([1.0, *(node.cpus / homes.count(node.node_id) for node in nodes if node.node_id in homes)])
    return 1.0 if share == 1.0 else max(0.01, int(share * 95) / 100)  # a little less, because Ray adds up hundredths
