"""A group that broadcasts weights: who takes part, who is missing, and at which address gloo listens. In threads of this process."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import ray
import torch
from rlcore_plugin_ray.weights_group import WeightsGroup

SECONDS = 30.0
INTERFACE = "GLOO_SOCKET_IFNAME"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The node is known by the address of the loopback interface."""
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    monkeypatch.setenv(INTERFACE, "")  # what is set below goes with the test
    del os.environ[INTERFACE]
    return monkeypatch


def take_part(group: WeightsGroup, rank: int, size: int) -> list[float]:
    """Two broadcasts, and what arrived."""
    group.join(rank, size)
    tensor = torch.full((4,), 7.0 if rank == 0 else 0.0)
    group.broadcast(tensor)
    group.broadcast(tensor[:2])
    group.leave()
    return tensor.tolist()


def test_what_rank_0_has_reaches_all() -> None:
    host = WeightsGroup.host("cpu", SECONDS)
    groups = [host, WeightsGroup(host.name), WeightsGroup(host.name)]
    with ThreadPoolExecutor(3) as pool:
        got = list(pool.map(take_part, groups, range(3), [3] * 3))
    assert got == [[7.0] * 4] * 3


def test_who_never_comes_is_missed_at_the_deadline() -> None:
    host = WeightsGroup.host("cpu", 1.0)
    with pytest.raises(RuntimeError):
        host.join(0, 2)
    host.leave()


def test_gloo_listens_where_the_node_is_known() -> None:
    take_part(WeightsGroup.host("cpu", SECONDS), 0, 1)
    assert os.environ[INTERFACE] == "lo"


def test_an_interface_that_the_user_chose_is_left_alone() -> None:
    os.environ[INTERFACE] = "lo,lo"
    take_part(WeightsGroup.host("cpu", SECONDS), 0, 1)
    assert os.environ[INTERFACE] == "lo,lo"
