"""An adaptive coefficient of the KL penalty."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import Controller, Decision
from rlcore_plugin_tools import ADAPTIVE_KL
from rlcore_plugin_tools.control.watched_figure import trained

__all__ = ["AdaptiveKl", "AdaptiveKlOptions"]


class AdaptiveKlOptions(BaseModel):
    """Options of ``adaptive_kl``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    initial: float = Field(default=0.01, gt=0, allow_inf_nan=False, description="coefficient after the first update")
    target: float = Field(default=0.05, gt=0, allow_inf_nan=False, description="KL divergence to keep, in nats per token")
    gain: float = Field(default=0.1, gt=0, lt=1, description="gain: an update changes the coefficient by at most 0.2 times this")
    figure: str = Field(default="kl_reference", min_length=1, description="figure with the KL divergence")


class AdaptiveKl(Controller, spec=ADAPTIVE_KL):
    """Multiplies the coefficient by 1 + gain * clip(KL / target - 1, -0.2, 0.2) after each update.

    Source: Ziegler et al. (arXiv 1909.08593), section 2.2, with their gain of 0.1.
    """

    def __init__(self, options: AdaptiveKlOptions) -> None:
        self._options, self._coefficient = options, options.initial

    def step_finished(self, step: int, figures: Mapping[str, float]) -> Decision:
        """Set the coefficient of the next update."""
        name = self._options.figure
        if name not in figures and not trained(figures):  # there is no divergence to follow
            return Decision(set={"algorithm.kl_coeff": self._coefficient})
        if name not in figures:
            raise ValueError(f"the run has no figure {name!r}; it has {', '.join(sorted(figures))}")
        error = float(np.clip(figures[name] / self._options.target - 1.0, -0.2, 0.2))
        self._coefficient *= 1.0 + self._options.gain * error
        return Decision(set={"algorithm.kl_coeff": self._coefficient})

    def state(self) -> Mapping[str, np.ndarray | float]:
        """Return the coefficient."""
        return {"coefficient": self._coefficient}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a state."""
        self._coefficient = float(state["coefficient"])
