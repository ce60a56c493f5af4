"""Engines of vLLM that may take weights by vLLM's own transfers, whose trainer's side is in rlcore-plugin-vllm."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from rlcore.api import Bucket, RunError
from rlcore_plugin_serving.joined_transfer import JoinedTransfer
from rlcore_plugin_serving.serving_backend import ServingBackend

__all__ = ["JoiningBackend"]


class JoiningBackend(ServingBackend):
    """A version comes bucket by bucket through the memory of the host, or the engine's workers take it from the trainer's side."""

    _joined: JoinedTransfer | None = None
    _remote = False

    @abstractmethod
    def ranks(self) -> int:
        """How many workers the engine has."""

    @abstractmethod
    def collective_rpc(self, method: str, *, kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a method of every worker; what each answers."""

    def describe(self) -> Mapping[str, Any]:
        """How many workers the engine has, and which tensor its head repeats."""
        return {"ranks": self.ranks(), "head_of": self._checkpoint.head_of or ""}

    def connect(self, info: Mapping[str, Any], epoch: int) -> None:
        """Have the workers join vLLM's own transfer, with the trainer engine that the trainer's side names."""
        if self.capabilities.transfers <= {"host"}:
            super().connect(info, epoch)
        if self._joined is not None:
            self._joined.leave()
            self._joined = None
        self._joined = JoinedTransfer(info, self.collective_rpc)

    def receive(self, bucket: Bucket) -> None:
        """Copy a bucket's tensors; or have the workers take the version from the trainer's side, which tears the old one."""
        if not bucket.info:
            super().receive(bucket)
            return
        if self._joined is None:
            raise RunError(f"version {bucket.version} comes by vLLM's own transfer, which the engine has not joined: call connect first")
        self._tear(self._under_way().version)
        self._joined.receive()
        self._remote = True

    def finish_update(self) -> int:
        """See ServingBackend."""
        if self._joined is None or not self._remote:
            return super().finish_update()
        incoming, self._arriving, self._remote = self._under_way(), None, False
        self._joined.finish()
        return self._serve(incoming.version)

    def close(self) -> None:
        """End the engine; requests in flight are forgotten."""
        if self._joined is not None:
            self._joined.close()
        super().close()
