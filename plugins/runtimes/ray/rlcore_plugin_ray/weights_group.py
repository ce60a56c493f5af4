"""A group for ``ray.util.collective`` that can come and go: its own rendezvous, and none of the process's default process group.

Ray's own gloo group (2.60) is a subgroup of torch's default process group, of which a process has one: a trainer rank's holds the trainer
ranks, and no group of it and the producers can be made. So a backend of our own is registered, with torch's process groups inside.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

import ray
import torch
import torch.distributed
from ray.util import collective
from ray.util.collective.collective_group.base_collective_group import BaseGroup

__all__ = ["destroy_group", "host_group", "join_group"]

dist: Any = torch.distributed  # its stores and groups are not in its type hints
_BACKEND = "RLCORE_WEIGHTS"
_hosted: dict[str, Any] = {}
# Group name -> the store of rank 0, which is made before the group so that the name can tell its port.


class _WeightsGroup(BaseGroup):  # type: ignore[misc]
    """Broadcast over gloo or nccl; the name of the group says where to meet: ``token@host:port/device/seconds``."""

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        place, device, seconds = group_name.partition("@")[2].rsplit("/", 2)
        host, _, port = place.rpartition(":")
        timeout = timedelta(seconds=float(seconds))
        store = _hosted.get(group_name) or dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=timeout)
        store.set_timeout(timeout)
        self._store = dist.PrefixStore("weights", store)
        self._group: Any
        if device == "cpu":
            options = dist.ProcessGroupGloo._Options()
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=ray.util.get_node_ip_address())]
            options._timeout = timeout
            self._group = dist.ProcessGroupGloo(self._store, rank, world_size, options)
        else:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            self._group = dist.ProcessGroupNCCL(self._store, rank, world_size, options)

    @classmethod
    def backend(cls) -> str:
        return _BACKEND

    @classmethod
    def check_backend_availability(cls) -> bool:
        return bool(dist.is_available())

    def broadcast(self, tensor: list[Any], broadcast_options: Any) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = broadcast_options.root_rank
        self._group.broadcast([torch.as_tensor(tensor[0])], options).wait()

    def destroy_group(self) -> None:
        self._group.abort()
        del self._group
        del self._store
        _hosted.pop(self._group_name, None)

    def allreduce(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("a group for weights only broadcasts")

    barrier = reduce = allgather = reducescatter = send = recv = allreduce


def host_group(device: str, deadline: float) -> str:
    """A new name, and the store behind it in this process, which will be rank 0."""
    host = ray.util.get_node_ip_address()
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=deadline))
    name = f"{secrets.token_hex(8)}@{host}:{store.port}/{device}/{deadline:g}"
    _hosted[name] = store
    return name


def join_group(name: str, rank: int, size: int) -> None:
    """Take part; all members call it. RuntimeError where they do not all come within the deadline."""
    if not collective.collective.is_backend_available(_BACKEND):
        collective.collective.register_collective_backend(_BACKEND, _WeightsGroup)
    collective.init_collective_group(size, rank, backend=_BACKEND, group_name=name)


def destroy_group(name: str) -> None:
    """Leave it, whole or broken; whoever still waits in it gets an error."""
    if collective.is_group_initialized(name):
        collective.destroy_collective_group(name)
    _hosted.pop(name, None)
