"""vLLM's trainer engines for a group of engines: CUDA IPC on one device, NCCL between devices. vllm is imported when the first version
is sent."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import torch
from rlcore_plugin_workers.background import HostVersion

from rlcore_plugin_vllm.engine_group import EngineGroup, TrainerEngine

__all__ = ["IpcSender", "NcclSender", "VllmSender", "host_tensors"]


def host_tensors(held: HostVersion) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield name and tensor; the tensors are views of the version in host memory."""
    layout, flat = held.layout, held.memory.flat
    for info, start in zip(layout.manifest.tensors, layout.offsets, strict=True):
        memory = torch.from_numpy(flat[start : start + info.nbytes])
        yield info.name, memory.view(getattr(torch, info.dtype)).view(info.shape)


class VllmSender:
    """A sender whose engine vLLM's factory creates from ``init_info(ranks, largest)``, whose class selects the backend."""

    def __init__(self, backend: str, device: str, init_info: Callable[[int, int], Any]) -> None:
        self.backend = backend
        self._device = torch.device(device)
        self._init_info = init_info

    def open(self, client: EngineGroup, *, ranks: int, largest: int) -> TrainerEngine:
        """See ``Sender``."""
        from rlcore_plugin_vllm.transfer_api import ParamMeta, WeightSource, WeightTransferTrainerFactory

        class VersionSource(WeightSource):  # type: ignore[misc,valid-type]
            """The version that the group sends, as vLLM reads a trainer's weights."""

            def metadata(self) -> list[Any]:
                return [ParamMeta(info.name, getattr(torch, info.dtype), tuple(info.shape)) for info in client.infos()]

            def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
                return client.tensors()

        if self._device.type == "cuda":
            torch.cuda.set_device(self._device.index or 0)  # the current device of this thread, which vLLM's engines use
        made: TrainerEngine = WeightTransferTrainerFactory.trainer_init(
            self._init_info(ranks, largest), client=client, source=VersionSource()
        )
        return made

    def tensors(self, held: HostVersion) -> Iterator[tuple[str, torch.Tensor]]:
        """See ``Sender``."""
        for name, tensor in host_tensors(held):
            yield name, tensor.to(self._device)


class IpcSender(VllmSender):
    """CUDA IPC: the engine's worker reads a buffer of the trainer's process on the device that both use."""

    def __init__(self, device: str, bucket_bytes: int) -> None:
        def init_info(ranks: int, largest: int) -> Any:
            from rlcore_plugin_vllm.transfer_api import IPCTrainerInitInfo

            return IPCTrainerInitInfo(rank=0, packed=True, packed_buffer_size_bytes=max(bucket_bytes, largest))

        super().__init__("ipc", device, init_info)


class NcclSender(VllmSender):
    """NCCL: a broadcast from the trainer's device to those of every engine's workers."""

    def __init__(self, device: str, bucket_bytes: int, host: str) -> None:
        def init_info(ranks: int, largest: int) -> Any:
            from rlcore_plugin_vllm.transfer_api import NCCLTrainerInitInfo

            return NCCLTrainerInitInfo(
                rank=0,
                master_address=host,
                master_port=_free_port(host),
                world_size=1 + ranks,
                packed=True,
                packed_buffer_size_bytes=bucket_bytes,
            )

        super().__init__("nccl", device, init_info)


def _free_port(host: str) -> int:
    with closing(socket.create_server((host, 0))) as server:
        return int(server.getsockname()[1])
