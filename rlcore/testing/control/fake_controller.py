"""A controller that lowers the learning rate with each update, and stops on request."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlcore.contracts.control import Controller, Decision
from rlcore.testing.fake_plugin import FAKE_CONTROLLER

__all__ = ["FakeController", "FakeControllerOptions"]


class FakeControllerOptions(BaseModel):
    """Options of the controller ``fake``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    stop_at: int = Field(default=0, ge=0, description="Update after which the run stops; 0: never.")


class FakeController(Controller, spec=FAKE_CONTROLLER):
    """Halves the learning rate after each update."""

    def __init__(self, options: FakeControllerOptions | None = None) -> None:
        self._stop_at = (options or FakeControllerOptions()).stop_at
        self._factor = 1.0

    def step_finished(self, step: int, figures: Mapping[str, float]) -> Decision:
        """Return half the factor of the update before."""
        self._factor /= 2
        return Decision(stop="enough" if step == self._stop_at else "", set={"training.learning_rate": self._factor})

    def state(self) -> Mapping[str, np.ndarray | float]:
        """Return the factor."""
        return {"factor": self._factor}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a state."""
        self._factor = float(state["factor"])
