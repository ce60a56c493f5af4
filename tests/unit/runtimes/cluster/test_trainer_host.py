"""A trainer rank as an actor, without Ray: where the ranks can meet."""

from __future__ import annotations

import socket

import pytest
import ray

from rlcore.errors import ConfigError
from rlcore.runtimes.cluster.trainer_host import TrainerHost


def host() -> TrainerHost:
    return TrainerHost(None, 0)  # type: ignore[arg-type]


def test_a_port_that_is_taken_is_refused_by_its_number() -> None:
    with socket.create_server((ray.util.get_node_ip_address(), 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"--master_port {port} cannot be used on .* \(Address already in use\); type another"):
            host().rendezvous(port)
    assert host().rendezvous(port).endswith(f":{port}")


def test_where_none_is_asked_for_a_free_one_is_taken() -> None:
    address, _, port = host().rendezvous(None).rpartition(":")
    assert address == f"tcp://{ray.util.get_node_ip_address()}"
    assert int(port) > 0
