"""Controllers with one planted bug each."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from rlcore.contracts.control import Controller, Decision


class ForgetsItsCount(Controller):
    """Stops after five updates, and counts from the start again when the run is resumed."""

    def __init__(self) -> None:
        self.count = 0

    def step_finished(self, step: int, figures: Mapping[str, float]) -> Decision:
        self.count += 1
        return Decision(stop="enough" if self.count >= 5 else "")


class ReadsTheClock(Controller):
    scales = ("training.learning_rate",)

    def step_finished(self, step: int, figures: Mapping[str, float]) -> Decision:
        return Decision(set={"training.learning_rate": 1.0 + time.perf_counter()})


class DeclaresNothing(Controller):
    def step_finished(self, step: int, figures: Mapping[str, float]) -> Decision:
        return Decision(set={"algorithm.kl_coeff": 0.1})


class ScalesBelowZero(Controller):
    scales = ("training.learning_rate",)

    def step_finished(self, step: int, figures: Mapping[str, float]) -> Decision:
        return Decision(set={"training.learning_rate": 1.0 - step})


class NeverDecides(Controller):
    """Stops after the hundredth update, which no run of the suite has."""

    def step_finished(self, step: int, figures: Mapping[str, float]) -> Decision:
        return Decision(stop="enough" if step == 100 else "")


class KeepsAnObject(Controller):
    def step_finished(self, step: int, figures: Mapping[str, float]) -> Decision:
        return Decision(save=step == 3)

    def state(self) -> Mapping[str, np.ndarray | float]:
        return {"seen": np.array([{}])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        pass
