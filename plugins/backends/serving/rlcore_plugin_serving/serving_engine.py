"""The interface of an engine for ``ServingBackend``, whether it runs in this process, in a separate one, or as a server elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlcore.api import Sampling
from rlcore_plugin_serving.incoming_weights import IncomingWeights
from rlcore_plugin_serving.partial_completions import NewTokens

__all__ = ["EngineRequest", "ServingEngine"]


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A request as it is sent to an engine.

    ``seed``: of all its draws; 63 bits. ``max_tokens``: the largest number of new tokens, at least 1. ``stop_token_ids``: each of them ends
    the answer, and is its last token. The engine does not handle stop strings. ``drawn``: the number of ``token_ids``, at the end, that
    belong to the answer, which the engine continues. ``rollout``: the same for all requests of a rollout, whose contexts begin alike; () if
    it is not known.
    """

    name: str
    token_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    max_tokens: int
    stop_token_ids: tuple[int, ...]
    drawn: int = 0
    rollout: tuple[int, ...] = ()

    def after(self, tokens: Sequence[int]) -> EngineRequest:
        """Return the remaining request once the answer has these tokens."""
        left, drawn = self.max_tokens - len(tokens), self.drawn + len(tokens)
        return replace(self, token_ids=(*self.token_ids, *tokens), max_tokens=left, drawn=drawn)


class ServingEngine(ABC):
    """An engine that serves version 0. Any call raises RunError if the engine has died, or has not returned for too long."""

    vocabulary: int
    """The number of tokens in its model's vocabulary."""

    @abstractmethod
    def add(self, asks: Sequence[EngineRequest]) -> None:
        """Queue requests: all of them, or none if one cannot be queued."""

    @abstractmethod
    def take(self, timeout: float) -> list[NewTokens]:
        """Return the parts that have come; waits up to ``timeout`` seconds if there are none. Called only while requests are open.

        An engine that sends nothing may block the caller for longer, so that the deadlines of the run find an engine that hangs.
        """

    @abstractmethod
    def abort(self, names: Iterable[str]) -> list[NewTokens]:
        """Drop requests. Returns the parts that had come, and a part that ends each request that the engine still knew."""

    @abstractmethod
    def score(self, token_ids: Sequence[int]) -> np.ndarray:
        """T token ids -> float32[T-1]: log probability of each token after the first, at temperature 1, without any cache."""

    @abstractmethod
    def pause(self) -> None:
        """Stop computing until ``serve``, before weights are written over the old ones. A second call does nothing."""

    @abstractmethod
    def load(self, incoming: IncomingWeights) -> None:
        """Write a whole version in this host's memory over the old one."""

    @abstractmethod
    def serve(self, version: int) -> None:
        """Continue under these weights, without any key or value of the old ones."""

    def sleep(self, level: int = 1) -> object:
        """Release the device. Level 1: weights move to host memory; level 2: nothing is kept."""
        raise NotImplementedError(f"{type(self).__name__} does not sleep")

    def wake_up(self, tags: list[str] | None = None) -> object:
        """Take memory back: for ``weights``, for ``kv_cache``."""
        raise NotImplementedError(f"{type(self).__name__} does not sleep")

    @abstractmethod
    def end(self) -> None:
        """Free the engine; a second call does nothing."""
