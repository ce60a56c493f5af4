"""The face of an engine that the backend sees, whether it runs in the producer's process or in its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from rlcore_plugin_vllm.answers import NewTokens
from rlcore_plugin_vllm.arriving import ArrivingWeights
from rlcore_plugin_vllm.vllm_api import LoRARequest, ModelConfig, RequestOutput, SamplingParams

__all__ = ["Driver", "log_probabilities"]


class Driver(ABC):
    """An engine that serves version 0. RunError from any call if it has died."""

    model_config: ModelConfig
    ranks: int
    """How many workers it has."""
    adapter: LoRARequest | None = None
    """Under which requests run; None if the engine takes none."""

    @abstractmethod
    def add(self, name: str, token_ids: Sequence[int], parameters: SamplingParams) -> None:
        """Queue a request; its output is of kind DELTA."""

    @abstractmethod
    def take(self, timeout: float) -> list[NewTokens]:
        """What has come: at least one token of one request, however long the engine takes for it, so that the run's deadline for an engine
        that does not come back finds one that hangs. Called only while requests are open."""

    @abstractmethod
    def abort(self, names: Iterable[str]) -> list[NewTokens]:
        """Drop requests: what had come, with a part that ends each of those that the engine still knew."""

    @abstractmethod
    def whole(self, name: str, token_ids: Sequence[int], parameters: SamplingParams) -> RequestOutput:
        """The answer to a request whose output is of kind FINAL_ONLY; the others go on meanwhile."""

    @abstractmethod
    def pause(self) -> None:
        """Before weights are written over the old ones: nothing is computed until ``serve``. Twice is once."""

    @abstractmethod
    def load(self, arriving: ArrivingWeights) -> None:
        """Write a version that lies on the host over the old one."""

    def swap_adapter(self, folder: str) -> None:
        """Have every worker read the adapter in a folder, in the place of the one before; requests run under it."""
        self.add_adapter(LoRARequest("policy", 1, folder, load_inplace=True))
        self.adapter = LoRARequest("policy", 1, folder)  # by its number, which the workers hold: the folder is not read again

    @abstractmethod
    def add_adapter(self, adapter: LoRARequest) -> None:
        """vLLM's ``add_lora``."""

    @abstractmethod
    def serve(self, version: int) -> None:
        """Go on under these weights, with no key or value of the old ones."""

    @abstractmethod
    def collective_rpc(self, method: str, timeout: float | None = None, args: tuple[Any, ...] = (), kwargs: Any = None) -> list[Any]:
        """Call a method of every worker."""

    @abstractmethod
    def sleep(self, level: int = 1) -> object:
        """Level 1: weights go to host memory; level 2: nothing is kept."""

    @abstractmethod
    def wake_up(self, tags: list[str] | None = None) -> object:
        """Take memory back: for ``weights``, for ``kv_cache``."""

    @abstractmethod
    def end(self) -> None:
        """Free the engine; a second call does nothing."""


def log_probabilities(record: object) -> list[float]:
    """The log probability of each new token, from the engine's flat record: at each place the token that was drawn stands first."""
    return [record.logprobs[start] for start in record.start_indices]  # type: ignore[attr-defined]
