"""Where Ray seats a producer whose own node is gone."""

from __future__ import annotations

from typing import Any

from rlcore_plugin_ray.node_placement import Node
from rlcore_plugin_ray.ray_site import RaySite
from rlcore_plugin_ray.session import RaySeat
from rlcore_plugin_workers.workers import Seat

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


def new_seat(nodes: Nodes) -> Seat | None:
    site: Any = RaySite.__new__(RaySite)
    site._session = nodes
    found: Seat | None = site.new_seat(SEAT).result(20.0)
    return found


SEAT = Seat(calls=8, place=RaySeat(node="n", group="the run's", bundle=3, cpus=0.5, gpus=0))  # type: ignore[arg-type]


def test_a_producer_is_replaced_where_it_was_while_its_node_lives() -> None:
    nodes = Nodes("other", "n")
    assert new_seat(nodes) == SEAT
    assert nodes.reserved == []


def test_a_producer_that_lost_its_node_moves_to_one_that_ray_chooses() -> None:
    nodes = Nodes("other")
    seat = new_seat(nodes)
    assert nodes.reserved == [[(None, 0.5, 0)]]
    assert seat is not None
    assert seat.calls == 8
    assert (seat.place.node, seat.place.group, seat.place.bundle, seat.place.cpus) == ("other", "a group of its own", 0, 0.5)


def test_a_producer_that_lost_its_node_and_finds_no_room_has_no_seat() -> None:
    assert new_seat(Nodes("other", room=False)) is None
