"""The weight transfers ``vllm_ipc`` and ``vllm_nccl``. Written from vLLM's sources and tested without a GPU; they have not run on one."""

from __future__ import annotations

import socket
from abc import abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress
from importlib.util import find_spec
from typing import Any

from rlcore.api import ConfigError
from rlcore.api.weights import OnFailure, WeightTransfer
from rlcore_plugin_vllm.engine_group import Sender
from rlcore_plugin_vllm.engine_publisher import EnginePublisher, EngineReceiver

__all__ = ["VllmIpc", "VllmNccl", "VllmTransfer"]


class VllmTransfer(WeightTransfer):
    """The code that both transfers share: messages between the processes."""

    name = ""
    host = "127.0.0.1"

    @abstractmethod
    def sender(self, device: str, bucket_bytes: int) -> Sender:
        """Return the sender that creates vLLM's trainer engine."""

    def publisher(self, *, deadline: float, bucket_bytes: int, device: str = "cpu", on_failure: OnFailure | None = None) -> EnginePublisher:
        """See WeightTransfer. Raises ConfigError in an environment without vllm, and for a trainer that is not on a GPU."""
        return EnginePublisher(deadline, bucket_bytes, on_failure, sender=self.sender(device, bucket_bytes), host=self.host)

    def receiver(self, *, name: str, address: Any, deadline: float, on_news: Callable[[], None]) -> EngineReceiver:
        """See WeightTransfer."""
        return EngineReceiver(name, address, on_news)

    def check_trainer(self, device: str) -> None:
        """Raise ConfigError if vLLM's trainer engine cannot run here."""
        if device.partition(":")[0] != "cuda":
            raise ConfigError(f"--transport {self.name} takes weights from a GPU, but the trainer is on {device}; type --transport auto")
        if find_spec("vllm") is None:
            raise ConfigError(
                f"--transport {self.name}: its trainer's side needs vllm, which the trainer's environment lacks; install vllm there, "
                "or type --transport auto"
            )


class VllmIpc(VllmTransfer):
    """``vllm_ipc``: trainer and engine on one device."""

    name = "vllm_ipc"

    def sender(self, device: str, bucket_bytes: int) -> Sender:
        """See VllmTransfer."""
        self.check_trainer(device)
        from rlcore_plugin_vllm.trainer_senders import IpcSender

        return IpcSender(device, bucket_bytes)


class VllmNccl(VllmTransfer):
    """``vllm_nccl``: trainer and engines on separate devices."""

    name = "vllm_nccl"

    @property
    def host(self) -> str:  # type: ignore[override]
        """The address at which other machines reach this one; the loopback address without a network."""
        with suppress(OSError), closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
            asked.connect(("192.0.2.1", 9))  # sends nothing: it only chooses an interface
            return str(asked.getsockname()[0])
        return "127.0.0.1"

    def sender(self, device: str, bucket_bytes: int) -> Sender:
        """See VllmTransfer."""
        self.check_trainer(device)
        from rlcore_plugin_vllm.trainer_senders import NcclSender

        return NcclSender(device, bucket_bytes, self.host)
