"""Which role runs on which node: a pure decision over the nodes that are there, and the placement group that holds it.

Trainers go together, on as few nodes as possible; producers go where no trainer is, as long as there is room, spread evenly. Devices are
GPUs where the cluster has them, and shares of its CPU cores otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlcore.api import ConfigError
from rlcore.api.runtime import RunConfig

__all__ = ["ClusterPlacement", "Node", "RoleNeeds", "place", "roles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of the cluster: its id, address, and what it has in all."""

    node_id: str
    address: str
    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleNeeds:
    """How many of a role, and the GPUs that each of them holds."""

    count: int
    gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlacement:
    """The node of every trainer rank and of every producer, and what each of them reserves: GPUs, or a share of CPU cores."""

    trainers: tuple[str, ...]
    producers: tuple[str, ...]
    cpus: float
    trainer_gpus: float
    producer_gpus: float

    colocated: bool = False

    @property
    def bundles(self) -> list[tuple[str, float, float]]:
        """(node, cpus, gpus) of each bundle of the placement group: the trainers' first. Colocated producers share the bundle, and so the
        device, of a trainer."""
        if not self.colocated:
            trainers = [(node, self.cpus, self.trainer_gpus) for node in self.trainers]
            return trainers + [(node, self.cpus, self.producer_gpus) for node in self.producers]
        guests = [len(range(rank, len(self.producers), len(self.trainers))) for rank in range(len(self.trainers))]
        return [
            (node, self.cpus * (1 + several), self.trainer_gpus + self.producer_gpus * several)
            for node, several in zip(self.trainers, guests, strict=True)
        ]

    def producer_bundle(self, number: int) -> int:
        """Which of them holds a producer; a trainer's is that of its rank."""
        return number % len(self.trainers) if self.colocated else len(self.trainers) + number


def roles(config: RunConfig) -> tuple[RoleNeeds, RoleNeeds]:
    """(trainers, producers) of a run: a GPU for each trainer rank and for each shard of a producer, unless they compute on cores."""
    training, inference = config.training, config.inference
    shards = inference.producer_tensor_parallel_size
    return (
        RoleNeeds(count=training.num_trainers, gpus=float(training.device != "cpu")),
        RoleNeeds(count=inference.num_inferencer, gpus=float((inference.device != "cpu") * shards)),
    )


def place(nodes: Sequence[Node], *, trainers: RoleNeeds, producers: RoleNeeds, colocated: bool = False) -> ClusterPlacement:
    """Decide. ``colocated``: producers share the devices of the trainers. ConfigError where the GPUs do not suffice."""
    if not nodes:
        raise ConfigError("the Ray cluster has no node that lives")
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
            f"{trainers.count} trainers and {producers.count} producers need {need:g} GPUs, those of one producer on one node, and the Ray "
            f"cluster has {have:g} on {len(free)} nodes; lower -t, -i or -ptp, type --placement colocated, or add nodes"
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
    """Nodes without trainers first, the emptiest first."""
    return sorted(free, key=lambda node: (node in trainer_nodes, -free[node], node))


def _take(free: dict[str, float], gpus: float, order: Sequence[str]) -> str | None:
    chosen = next((node for node in order if free[node] >= gpus), None)
    if chosen is not None:
        free[chosen] -= gpus
    return chosen


def _cpu_share(nodes: Sequence[Node], homes: Sequence[str]) -> float:
    """The same for every role: a core where there are enough, else what the fullest node can give each of its own."""
    share = min([1.0, *(node.cpus / homes.count(node.node_id) for node in nodes if node.node_id in homes)])
    return 1.0 if share == 1.0 else max(0.01, int(share * 95) / 100)  # a little less: Ray adds up hundredths
