"""A sampler that draws a prompt once more if most of its answers were wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.contracts.sampler import DrawResult, Sampler, SamplerContext

__all__ = ["FakeSampler"]


class FakeSampler(Sampler):
    """Draws the items in their order. An item whose accuracy was below one half is drawn once more, before the next one."""

    def __init__(self, context: SamplerContext) -> None:
        self._items = context.items
        self._drawn = 0
        self._again: list[int] = []
        self._repeated: list[int] = []

    def next(self) -> int:
        """Return the first wrong item, or the next one."""
        if self._again:
            self._repeated.append(self._again.pop(0))
            return self._repeated[-1]
        self._drawn += 1
        return self._drawn - 1 if self._items is None else (self._drawn - 1) % self._items

    def observe(self, result: DrawResult) -> None:
        """Keep a wrong item."""
        if result.item in self._repeated:
            self._repeated.remove(result.item)
        elif result.accuracy is not None and result.accuracy < 0.5:
            self._again.append(result.item)

    def state(self) -> Mapping[str, Any]:
        """Return the number of draws, the wrong items, and those that were drawn once more."""
        return {"drawn": self._drawn, "again": list(self._again), "repeated": list(self._repeated)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._drawn, self._again, self._repeated = state["drawn"], list(state["again"]), list(state["repeated"])
