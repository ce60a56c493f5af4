"""Where the roles go: trainers together, producers elsewhere where there is an elsewhere, never more GPUs than a node has."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_plugin_ray.node_placement import Node, RoleNeeds, place

from rlcore.api import ConfigError


def nodes(*gpus: float, cpus: float = 8.0) -> list[Node]:
    return [Node(node_id=f"n{number}", address=f"10.0.0.{number}", cpus=cpus, gpus=count) for number, count in enumerate(gpus)]


def test_one_machine_holds_everything_in_shares_of_its_cores() -> None:
    placed = place(nodes(0, cpus=2), trainers=RoleNeeds(count=2, gpus=1), producers=RoleNeeds(count=2, gpus=1))
    assert {*placed.trainers, *placed.producers} == {"n0"}
    assert 4 * placed.cpus <= 2
    assert placed.trainer_gpus == placed.producer_gpus == 0


def test_producers_and_trainers_are_on_nodes_of_their_own_where_possible() -> None:
    for gpus in (0, 4):
        placed = place(nodes(gpus, gpus, gpus), trainers=RoleNeeds(count=2, gpus=1), producers=RoleNeeds(count=4, gpus=1))
        assert len(set(placed.trainers)) == 1
        assert not set(placed.trainers) & set(placed.producers)
        assert sorted(Counter(placed.producers).values()) == [2, 2]


def test_a_producer_s_gpus_are_on_one_node() -> None:
    with pytest.raises(ConfigError, match=r"need 3 GPUs \(those of one producer on one node\).*has 4 on 2 nodes"):
        place(nodes(2, 2), trainers=RoleNeeds(count=0, gpus=1), producers=RoleNeeds(count=1, gpus=3))


def test_too_few_gpus_are_said_with_what_to_type() -> None:
    with pytest.raises(ConfigError, match=r"2 trainers and 3 producers need 5 GPUs.*lower -t, -i or -ptp, type --placement colocated"):
        place(nodes(4), trainers=RoleNeeds(count=2, gpus=1), producers=RoleNeeds(count=3, gpus=1))


def test_colocated_roles_share_devices_half_and_half() -> None:
    placed = place(nodes(2), trainers=RoleNeeds(count=2, gpus=1), producers=RoleNeeds(count=2, gpus=1), colocated=True)
    assert placed.trainers == placed.producers == ("n0", "n0")
    assert placed.trainer_gpus + placed.producer_gpus == 1.0
    assert [gpus for _, _, gpus in placed.bundles] == [1.0, 1.0]  # a whole GPU for each pair, or two trainers might share one
    assert [placed.producer_bundle(number) for number in range(2)] == [0, 1]


def test_colocated_producers_that_do_not_fit_onto_the_trainers_are_refused() -> None:
    for producers in (RoleNeeds(count=3, gpus=1), RoleNeeds(count=2, gpus=2)):
        with pytest.raises(ConfigError, match=r"do not fit onto 2 trainers; type -i 2 -ptp 1"):
            place(nodes(4), trainers=RoleNeeds(count=2, gpus=1), producers=producers, colocated=True)


def test_on_cpus_of_a_cluster_that_has_gpus_producers_are_spread() -> None:
    placed = place(nodes(4, 4, 4), trainers=RoleNeeds(count=1, gpus=0), producers=RoleNeeds(count=6, gpus=0))
    assert sorted(Counter(placed.producers).values()) == [3, 3]


def test_a_cluster_without_nodes_is_refused() -> None:
    with pytest.raises(ConfigError, match="no live node"):
        place([], trainers=RoleNeeds(count=1, gpus=0), producers=RoleNeeds(count=1, gpus=0))


@given(
    sizes=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    trainers=st.integers(1, 6),
    producers=st.integers(1, 6),
    width=st.integers(1, 4),
)
def test_no_node_gives_more_gpus_than_it_has(sizes: list[int], trainers: int, producers: int, width: int) -> None:
    cluster = nodes(*map(float, sizes))
    try:
        placed = place(cluster, trainers=RoleNeeds(count=trainers, gpus=1), producers=RoleNeeds(count=producers, gpus=width))
    except ConfigError:
        return
    taken: Counter[str] = Counter()
    for node in placed.trainers:
        taken[node] += placed.trainer_gpus
    for node in placed.producers:
        taken[node] += placed.producer_gpus
    assert all(taken[node.node_id] <= node.gpus for node in cluster)
    cpus = Counter({node: placed.cpus * count for node, count in Counter((*placed.trainers, *placed.producers)).items()})
    assert all(cpus[node.node_id] <= node.cpus + 0.011 * (trainers + producers) for node in cluster)
