"""A learning rate that falls when the reward stops to improve."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from rlcore.api import Controller, Decision
from rlcore_plugin_tools import PLATEAU
from rlcore_plugin_tools.control.watched_figure import FigureOptions, WatchedFigure

__all__ = ["Plateau", "PlateauOptions"]


class PlateauOptions(FigureOptions):
    """Options of ``plateau``."""

    factor: float = Field(default=0.5, gt=0, lt=1, description="factor of the learning rate at each plateau")
    lowest: float = Field(default=0.01, ge=0, lt=1, description="lowest product of the factors")


class Plateau(Controller, spec=PLATEAU):
    """Multiplies the learning rate by ``factor`` after ``patience`` updates or evaluations without improvement, and counts anew."""

    def __init__(self, options: PlateauOptions) -> None:
        self._options, self._best, self._scale = options, WatchedFigure(options), 1.0
        self._of_evaluations = options.figure.startswith("eval/")

    def evaluated(self, step: int, figures: Mapping[str, float]) -> None:
        """Count an evaluation, if it has the figure."""
        self._count(figures, required=self._of_evaluations)

    def step_finished(self, step: int, figures: Mapping[str, float]) -> Decision:
        """Count an update, if it has the figure, and scale the rate of the next one."""
        self._count(figures, required=not self._of_evaluations)
        return Decision(set={"training.learning_rate": self._scale})

    def _count(self, figures: Mapping[str, float], *, required: bool) -> None:
        if self._best.saw(figures, required=required):
            self._best.since = 0
            self._scale = max(self._scale * self._options.factor, self._options.lowest)

    def state(self) -> Mapping[str, np.ndarray | float]:
        """Return the best value, the count and the factor."""
        return {**self._best.state(), "scale": self._scale}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a state."""
        self._best.restore(state)
        self._scale = float(state["scale"])
