"""Replay: prompts that were not solved are issued again after some updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import Draw, DrawResult, Sampler, SamplerContext
from rlcore_plugin_tools.sampling.chance import shuffled
from rlcore_plugin_tools.sampling.success import success

__all__ = ["Replay", "ReplayOptions"]


class ReplayOptions(BaseModel):
    """Options of ``replay``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    age: int = Field(default=10, ge=1, description="updates after which a prompt is issued again")
    below: float = Field(default=1.0, gt=0, le=1, description="only prompts whose accuracy was below this are issued again")
    share: float = Field(default=0.5, gt=0, lt=1, description="largest share of the draws that are issued again")


class Replay(Sampler):
    """Draws in shuffled episodes, or in order if the data has no end. Between these draws it issues unsolved prompts again."""

    def __init__(self, context: SamplerContext, options: ReplayOptions) -> None:
        self._items, self._seed, self._options = context.items, context.seed, options
        self._order: list[int] = []
        self._new = self._again = self._version = 0
        self._waiting: list[list[int]] = []
        """The version at which a prompt is due, the prompt and its level; the oldest first."""

    def next(self) -> Draw:
        """Return the oldest prompt that is due, else a new one."""
        due = bool(self._waiting) and self._waiting[0][0] <= self._version
        if due and self._again + 1 <= self._options.share * (self._new + self._again + 1):
            self._again += 1
            _, item, level = self._waiting.pop(0)
            return Draw(item, level)
        self._new += 1
        return Draw(self._new - 1 if self._items is None else self._ordered(self._new - 1, self._items))

    def _ordered(self, number: int, items: int) -> int:
        episode, position = divmod(number, items)
        if position == 0 or not self._order:
            self._order = shuffled(items, self._seed, episode)
        return self._order[position]

    def observe(self, result: DrawResult) -> None:
        """Keep the prompt if it was not solved. One that failed is not kept."""
        self._version = result.version
        if result.ended != "failed" and (value := success(result)) is not None and value < self._options.below:
            self._waiting.append([result.version + self._options.age, result.item, result.level])

    def state(self) -> Mapping[str, Any]:
        """Return the numbers of draws, the version and the prompts that wait."""
        counts = {"new": self._new, "again": self._again, "version": self._version}
        return {**counts, "waiting": [list(one) for one in self._waiting]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._new, self._again, self._version = state["new"], state["again"], state["version"]
        self._waiting, self._order = [list(one) for one in state["waiting"]], []
