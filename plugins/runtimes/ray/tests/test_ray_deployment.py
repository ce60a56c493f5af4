"""Where Ray seats a producer whose own node is gone."""

from __future__ import annotations

from typing import Any

from rlcore_plugin_ray.node_placement import Node
from rlcore_plugin_ray.ray_deployment import RayDeployment
from rlcore_plugin_ray.session import RayPlacement
from rlcore_plugin_workers.workers import Placement

from rlcore.api import ConfigError


class Nodes:
    """A session without Ray, of which these nodes live."""

    def __init__(self, *alive: str, room: bool = True) -> None:
        self.alive, self.room, self.reserved = alive, room, list[Any]()

    def nodes(self) -> list[Node]:
        return [Node(node_id=node, address="a", cpus=2, gpus=0) for node in self.alive]

    def reserve(self, bundles: list[Any], seconds: float) -> str:
        self.reserved.append(bundles)
        if not self.room:
            raise ConfigError("the cluster has no room")
        return "a group of its own"

    def home(self, group: str, bundle: int) -> str:
        assert group == "a group of its own"
        return self.alive[bundle]


def find_placement(nodes: Nodes) -> Placement | None:
    deployment: Any = RayDeployment.__new__(RayDeployment)
    deployment._session = nodes
    found: Placement | None = deployment.find_placement(SEAT).result(20.0)
    return found


SEAT = Placement(calls=8, place=RayPlacement(node="n", group="the run's", bundle=3, cpus=0.5, gpus=0))  # type: ignore[arg-type]


def test_a_producer_is_replaced_where_it_was_while_its_node_lives() -> None:
    nodes = Nodes("other", "n")
    assert find_placement(nodes) == SEAT
    assert nodes.reserved == []


def test_a_producer_that_lost_its_node_moves_to_one_that_ray_chooses() -> None:
    nodes = Nodes("other")
    placement = find_placement(nodes)
    assert nodes.reserved == [[(None, 0.5, 0)]]
    assert placement is not None
    assert placement.calls == 8
    assert (placement.place.node, placement.place.group, placement.place.bundle, placement.place.cpus) == (
        "other",
        "a group of its own",
        0,
        0.5,
    )


def test_a_producer_that_lost_its_node_and_finds_no_room_has_no_seat() -> None:
    assert find_placement(Nodes("other", room=False)) is None
