"""Engines of vLLM that may take weights by vLLM's own transfers; the trainer's side is in rlcore-plugin-vllm."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from rlcore.api import Bucket, RunError
from rlcore_plugin_serving.joined_transfer import JoinedTransfer
from rlcore_plugin_serving.serving_backend import ServingBackend

__all__ = ["JoiningBackend"]


class JoiningBackend(ServingBackend):
    """A backend whose versions arrive bucket by bucket through host memory, or from the trainer's side directly at the engine's workers."""

    _joined: JoinedTransfer | None = None
    _remote = False

    @abstractmethod
    def ranks(self) -> int:
        """Return the number of workers of the engine."""

    @abstractmethod
    def collective_rpc(self, method: str, *, kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a method of every worker, and return the answer of each."""

    def describe(self) -> Mapping[str, Any]:
        """Describe the engine: the number of workers, and the tensor that its head repeats."""
        return {"ranks": self.ranks(), "head_of": self._checkpoint.head_of or ""}

    def connect(self, info: Mapping[str, Any], epoch: int) -> None:
        """Let the workers join vLLM's own transfer, with the trainer engine that the trainer's side names."""
        if self.capabilities.transfers <= {"host"}:
            super().connect(info, epoch)
        if self._joined is not None:
            self._joined.leave()
            self._joined = None
        self._joined = JoinedTransfer(info, self.collective_rpc)

    def receive(self, bucket: Bucket) -> None:
        """Copy a bucket's tensors, or let the workers take the version from the trainer's side, which overwrites the old one."""
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
        """End the engine; requests in flight are discarded."""
        if self._joined is not None:
            self._joined.close()
        super().close()
