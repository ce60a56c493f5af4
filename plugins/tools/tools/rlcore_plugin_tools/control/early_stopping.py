"""Early stopping by patience."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rlcore.api import Controller, Decision
from rlcore_plugin_tools.control.watched_figure import FigureOptions, WatchedFigure

__all__ = ["EarlyStopping", "EarlyStoppingOptions"]


class EarlyStoppingOptions(FigureOptions):
    """Options of ``early_stopping``."""


class EarlyStopping(Controller):
    """Stops the run if a figure has not improved for ``patience`` values: evaluations if its name begins with ``eval/``, else updates."""

    def __init__(self, options: EarlyStoppingOptions) -> None:
        self._options, self._best = options, WatchedFigure(options)
        self._of_evaluations = options.figure.startswith("eval/")

    def evaluated(self, step: int, figures: Mapping[str, float]) -> None:
        """Count an evaluation."""
        if self._of_evaluations:
            self._best.saw(figures, required=True)

    def step_finished(self, step: int, figures: Mapping[str, float]) -> Decision | None:
        """Count an update, and stop if nothing has improved for too long."""
        if not self._of_evaluations:
            self._best.saw(figures, required=True)
        elif math.isnan(self._best.best):
            raise ValueError(f"there was no evaluation with {self._options.figure} before update {step}; give the run --eval-dataset")
        if self._best.since < self._options.patience:
            return None
        kind = "evaluation" if self._of_evaluations else "update"
        times = f"{self._best.since} {kind}s" if self._best.since > 1 else f"one {kind}"
        return Decision(stop=f"{self._options.figure} has not improved in {times}")

    def state(self) -> Mapping[str, np.ndarray | float]:
        """Return the best value and the count."""
        return self._best.state()

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a state."""
        self._best.restore(state)
