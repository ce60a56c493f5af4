"""The difficulty of data without end, raised by success."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import ConfigError, Draw, DrawResult, Sampler, SamplerContext
from rlcore_plugin_tools.sampling.success import success

__all__ = ["RisingLevel", "RisingLevelOptions"]


class RisingLevelOptions(BaseModel):
    """Options of ``rising_level``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    window: int = Field(default=32, ge=1, description="groups of a level that are averaged before the level may change")
    rise: float = Field(default=0.8, gt=0, le=1, description="mean accuracy from which on the level rises by one")
    fall: float = Field(default=0.1, ge=0, lt=1, description="mean accuracy below which the level falls by one")


class RisingLevel(Sampler):
    """Draws the rows in their order, at a level that rises after so many groups that were mostly right, and falls after as many that were
    mostly wrong. If there are no accuracies, rewards within 0 and 1 count."""

    def __init__(self, context: SamplerContext, options: RisingLevelOptions) -> None:
        if context.items is not None or context.levels == 1:
            raise ConfigError("the sampler rising_level needs data without end that has several levels; type --sampler success_rate")
        self._options, self._highest = options, context.levels - 1
        self._drawn = self._level = 0
        self._recent: list[float] = []

    def next(self) -> Draw:
        """Return the next row at the level of now."""
        self._drawn += 1
        return Draw(self._drawn - 1, self._level)

    def observe(self, result: DrawResult) -> None:
        """Count a group of the level of now, and change the level after ``window`` of them."""
        if (value := success(result)) is None or result.level != self._level:
            return
        self._recent.append(value)
        if len(self._recent) == self._options.window:
            mean, self._recent = sum(self._recent) / len(self._recent), []
            self._level += (mean >= self._options.rise and self._level < self._highest) - (mean < self._options.fall and self._level > 0)

    def state(self) -> Mapping[str, Any]:
        """Return the number of draws, the level and the accuracies that it averages."""
        return {"drawn": self._drawn, "level": self._level, "recent": list(self._recent)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._drawn, self._level, self._recent = state["drawn"], state["level"], list(state["recent"])
