"""A group that broadcasts weights over gloo or nccl, and that can be made and dropped at any time.

It is a torch process group with its own store, next to the default process group of the process. That one holds the trainer ranks, and
``torch.distributed.new_group`` makes groups only of its members.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import struct
from datetime import timedelta
from typing import Any

import ray
import torch
import torch.distributed

__all__ = ["WeightsGroup"]

dist: Any = torch.distributed  # its type hints lack the stores and groups
_INTERFACE = "GLOO_SOCKET_IFNAME"
_GET_ADDRESS = 0x8915
"""``SIOCGIFADDR`` of Linux: the IPv4 address of a network interface."""


class WeightsGroup:
    """A group, whose name contains its address: ``token@host:port/device/seconds``. Rank 0 hosts the group, the others make it from its
    name."""

    def __init__(self, name: str) -> None:
        self.name = name
        place, self.device, seconds = name.partition("@")[2].rsplit("/", 2)
        self._host, _, port = place.rpartition(":")
        self._port = int(port)
        self._timeout = timedelta(seconds=float(seconds))
        self._store: Any = None
        self._group: Any = None

    @classmethod
    def host(cls, device: str, deadline: float) -> WeightsGroup:
        """Return a group with a new name, of which this process is rank 0."""
        host = ray.util.get_node_ip_address()
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=deadline))
        made = cls(f"{secrets.token_hex(8)}@{host}:{store.port}/{device}/{deadline:g}")
        made._store = store
        return made

    def join(self, rank: int, size: int) -> None:
        """Join the group; all members call this. Raise RuntimeError if they do not all join within the deadline."""
        if self._store is None:
            self._store = dist.TCPStore(self._host, self._port, is_master=False, wait_for_workers=False, timeout=self._timeout)
        if self.device == "cpu":
            _choose_interface()
        backend = dist.ProcessGroupGloo if self.device == "cpu" else dist.ProcessGroupNCCL
        self._group = backend(dist.PrefixStore("weights", self._store), rank, size, self._timeout)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Send a tensor from rank 0 to the other members, which receive it into theirs. Raise RuntimeError if a member is gone."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self._group.broadcast([tensor], options).wait()

    def leave(self) -> None:
        """Leave the group, whether it is whole or broken. A member that still waits in it gets an error."""
        if self._group is not None:
            self._group.abort()
        self._group = self._store = None


def _choose_interface() -> None:
    """Have gloo listen at the node's address in the cluster, unless the user has chosen an interface. By default gloo uses the address of
    the host's name, which is 127.0.0.1 on many machines."""
    if _INTERFACE in os.environ:
        return
    address = ray.util.get_node_ip_address()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking, _GET_ADDRESS, struct.pack("256s", name.encode()))
            except OSError:  # it has no IPv4 address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                os.environ[_INTERFACE] = name
                return
