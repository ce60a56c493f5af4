"""A curriculum by a column of the data."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import ConfigError, Sampler, SamplerContext
from rlcore_plugin_tools.sampling.chance import shuffled

__all__ = ["EasyToHard", "EasyToHardOptions"]


class EasyToHardOptions(BaseModel):
    """Options of ``easy_to_hard``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    column: str = Field(default="difficulty", min_length=1, description="column with the difficulty of a row, a number")


class EasyToHard(Sampler):
    """Draws each episode from the easiest prompt to the hardest; prompts of equal difficulty in a random order of the episode."""

    def __init__(self, context: SamplerContext, options: EasyToHardOptions) -> None:
        rows = context.rows()
        if not rows:
            other = "rising_level" if context.items is None else "success_rate"
            lacks = "orders prompts by a column, and data without end and sources have none"
            raise ConfigError(f"the sampler easy_to_hard {lacks}; type --sampler {other}")
        self._difficulties = [_number(row.get(options.column), options.column, name) for row, name in zip(rows, context.ids, strict=True)]
        self._seed, self._drawn = context.seed, 0
        self._order: list[int] = []

    def next(self) -> int:
        """Return the next prompt of the episode."""
        episode, position = divmod(self._drawn, len(self._difficulties))
        if position == 0 or not self._order:
            self._order = sorted(shuffled(len(self._difficulties), self._seed, episode), key=self._difficulties.__getitem__)
        self._drawn += 1
        return self._order[position]

    def state(self) -> Mapping[str, Any]:
        """Return the number of draws."""
        return {"drawn": self._drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._drawn, self._order = state["drawn"], []


def _number(value: Any, column: str, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        needs = f"needs a number in the column {column} of each row, and that of {name} is {value!r}"
        raise ConfigError(f"the sampler easy_to_hard {needs}; name another column in [data.sampler_options], or type --sampler shuffled")
    return float(value)
