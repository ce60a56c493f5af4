"""The best value of a figure so far, and how long ago it was."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

__all__ = ["FigureOptions", "WatchedFigure", "trained"]


class FigureOptions(BaseModel):
    """The figure that a controller watches."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    figure: str = Field(default="reward/mean", min_length=1, description="figure of metrics.jsonl, of an update or of an evaluation")
    better: Literal["higher", "lower"] = Field(default="higher", description="which values of the figure are better")
    patience: int = Field(default=5, ge=1, description="values in a row that may be no better than the best one")
    min_delta: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="an improvement must be larger than this")


def trained(figures: Mapping[str, float]) -> bool:
    """Return whether an update took an optimizer step. One whose groups were all filtered has no loss and no KL."""
    return figures.get("optimizer_steps", 1.0) > 0


class WatchedFigure:
    """Counts the values since the best one."""

    def __init__(self, options: FigureOptions) -> None:
        self._options = options
        self.best, self.since = math.nan, 0

    def saw(self, figures: Mapping[str, float], *, required: bool = False) -> bool:
        """Take the figure if it is there. Return whether none of the last ``patience`` values was better than the best.

        :raises ValueError: the figure is absent and ``required``, or not a number."""
        name, sign = self._options.figure, 1.0 if self._options.better == "higher" else -1.0
        if name not in figures:
            if required and trained(figures):
                raise ValueError(f"the run has no figure {name!r}; it has {', '.join(sorted(figures))}")
            return False
        value = sign * figures[name]
        if math.isnan(self.best) or value > self.best + self._options.min_delta:
            self.best, self.since = value, 0
        else:
            self.since += 1
        return self.since >= self._options.patience

    def state(self) -> Mapping[str, np.ndarray | float]:
        """Return the best value and the count."""
        return {"best": self.best, "since": float(self.since)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a state."""
        self.best, self.since = float(state["best"]), int(state["since"])
