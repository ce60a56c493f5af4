"""An engine that releases its device memory and takes it again in two steps: first for the weights, then for the cache."""

from __future__ import annotations

from typing import Protocol

from rlcore.api import RunError

__all__ = ["EngineSleep", "SleepingEngine"]


class SleepingEngine(Protocol):
    """The methods of an engine that this module calls; their names are vLLM's (``LLMEngine.sleep`` and ``wake_up`` in
    vllm/v1/engine/llm_engine.py of 0.32)."""

    def sleep(self, level: int = 1) -> object:
        """Release the device. Level 1: weights move to host memory; level 2: nothing is kept. Keys and values are lost at both levels."""
        ...

    def wake_up(self, tags: list[str] | None = None) -> object:
        """Take memory back: for ``weights``, for ``kv_cache``. The scheduler continues when all of it is allocated."""
        ...


class EngineSleep:
    """Calls the engine in the order of the contract, and tracks which memory it has.

    >>> sleep = EngineSleep(engine, "the vllm engine")
    >>> sleep.begin(2); sleep.wake_weights(); sleep.wake_cache()
    """

    def __init__(self, engine: SleepingEngine, who: str) -> None:
        self._engine, self._who = engine, who
        self._weights = self._cache = True

    @property
    def asleep(self) -> bool:
        """True if there is no memory for weights."""
        return not self._weights

    def begin(self, level: int) -> None:
        """Release the device. A second call does nothing."""
        if self._weights or self._cache:
            self._engine.sleep(level)
            self._weights = self._cache = False

    def wake_weights(self) -> None:
        """Take back the memory of the weights."""
        if not self._weights:
            self._engine.wake_up(tags=["weights"])
            self._weights = True

    def wake_cache(self) -> None:
        """Take back the memory of keys and values. Raises RunError if the weights have no memory yet."""
        if not self._weights:
            raise RunError(f"{self._who} sleeps: call wake() and update its weights before wake_cache()")
        if not self._cache:
            self._engine.wake_up(tags=["kv_cache"])
            self._cache = True

    def require_cache(self, doing: str) -> None:
        """Raise RunError unless keys and values have memory: until then the engine's scheduler stalls and would never answer."""
        if not self._cache:
            raise RunError(f"{self._who} has no memory for keys and values and cannot {doing}: call wake_cache() after the update")
