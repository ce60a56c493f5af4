"""The face of an engine that ``ServingBackend`` sees, whether it runs in this process, in one of its own, or as a server somewhere."""

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
    """A request as an engine is asked. ``seed``: of all its draws; 63 bits. ``max_tokens``: new ones that there is room for, at least 1;
    ``stop_token_ids``: each of them ends the answer, and is its last token. Stop strings are not the engine's business.

    ``drawn``: so many of ``token_ids``, the last ones, are of the answer: the engine goes on with it."""

    name: str
    token_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    max_tokens: int
    stop_token_ids: tuple[int, ...]
    drawn: int = 0

    def after(self, tokens: Sequence[int]) -> EngineRequest:
        """What is left to ask for once these tokens of the answer are there."""
        left, drawn = self.max_tokens - len(tokens), self.drawn + len(tokens)
        return replace(self, token_ids=(*self.token_ids, *tokens), max_tokens=left, drawn=drawn)


class ServingEngine(ABC):
    """An engine that serves version 0. RunError from any call if it has died, or has not come back for too long."""

    vocabulary: int
    """How many tokens its model knows."""

    @abstractmethod
    def add(self, asks: Sequence[EngineRequest]) -> None:
        """Queue requests: all of them, or none if one cannot be."""

    @abstractmethod
    def take(self, timeout: float) -> list[NewTokens]:
        """What has come; waits for ``timeout`` seconds if nothing has. An engine that says nothing at all may keep the caller for longer,
        so that the deadlines of the run find one that hangs. Called only while requests are open."""

    @abstractmethod
    def abort(self, names: Iterable[str]) -> list[NewTokens]:
        """Drop requests: what had come, with a part that ends each of those that the engine still knew."""

    @abstractmethod
    def score(self, token_ids: Sequence[int]) -> np.ndarray:
        """T token ids -> float32[T-1]: log probability of each after the first, at temperature 1, with nothing of a cache."""

    @abstractmethod
    def pause(self) -> None:
        """Before weights are written over the old ones: nothing is computed until ``serve``. Twice is once."""

    @abstractmethod
    def load(self, incoming: IncomingWeights) -> None:
        """Write a whole version that lies on this host over the old one."""

    @abstractmethod
    def serve(self, version: int) -> None:
        """Go on under these weights, with no key or value of the old ones."""

    def sleep(self, level: int = 1) -> object:
        """Give the device back. Level 1: weights go to host memory; level 2: nothing is kept."""
        raise NotImplementedError(f"{type(self).__name__} does not sleep")

    def wake_up(self, tags: list[str] | None = None) -> object:
        """Take memory back: for ``weights``, for ``kv_cache``."""
        raise NotImplementedError(f"{type(self).__name__} does not sleep")

    @abstractmethod
    def end(self) -> None:
        """Free the engine; a second call does nothing."""
