"""A curriculum by success: what is solved about half of the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import ConfigError, DrawResult, Sampler, SamplerContext
from rlcore_plugin_tools.sampling.chance import chance
from rlcore_plugin_tools.sampling.success import success

__all__ = ["SuccessRate", "SuccessRateOptions"]


_ROUNDING = 1e-9


class SuccessRateOptions(BaseModel):
    """Options of ``success_rate``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    target: float = Field(default=0.5, gt=0, lt=1, description="success rate that is drawn most often")
    explore: float = Field(default=0.05, gt=0, le=1, description="weight of what is farthest from the target; that at the target has 1")
    newest: float = Field(default=0.5, gt=0, le=1, description="weight of the newest group in the estimate of a success rate")


class SuccessRate(Sampler):
    """Draws at random; the nearer the success rate of an item is to the target, the more often.

    A rate is that of the first group, then a moving average: of accuracies, or of rewards within 0 and 1 if there are no accuracies. An
    item that was not drawn yet counts as at the target, so that it comes early. The weight of a source counts, too. An item with more than
    its share of the draws under way waits for their results, so that a prompt is not drawn again and again before the first of them.
    """

    def __init__(self, context: SamplerContext, options: SuccessRateOptions) -> None:
        if context.items is None:
            raise ConfigError("the sampler success_rate draws prompts again, and the data has no end; type --sampler rising_level")
        self._options, self._seed = options, context.seed
        self._weights = np.asarray(context.weights) / sum(context.weights)
        self._rates = np.full(context.items, np.nan)
        self._open = np.zeros(context.items, dtype=np.int64)
        self._drawn = 0

    def next(self) -> int:
        """Draw among the items that do not have more than their share of the draws under way."""
        rates = np.where(np.isnan(self._rates), self._options.target, self._rates)
        distance = np.abs(rates - self._options.target) / max(self._options.target, 1 - self._options.target)
        shares = self._weights * np.maximum(1 - distance**2, self._options.explore)
        shares /= shares.sum()
        sums = np.cumsum(shares * (self._open <= shares * self._open.sum() + _ROUNDING))
        item = int(np.searchsorted(sums, chance(self._seed, self._drawn) * sums[-1], side="right"))
        self._drawn += 1
        self._open[item] += 1
        return item

    def observe(self, result: DrawResult) -> None:
        """Move the rate of the item."""
        self._open[result.item] -= 1
        if (new := success(result)) is not None:
            old = self._rates[result.item]
            self._rates[result.item] = new if np.isnan(old) else old + self._options.newest * (new - old)

    def state(self) -> Mapping[str, Any]:
        """Return the rates, the draws under way, and their number."""
        rates = [None if np.isnan(rate) else rate for rate in self._rates.tolist()]
        return {"rates": rates, "open": self._open.tolist(), "drawn": self._drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._rates, self._open, self._drawn = (
            np.array(state["rates"], dtype=np.float64),
            np.array(state["open"], dtype=np.int64),
            state["drawn"],
        )
