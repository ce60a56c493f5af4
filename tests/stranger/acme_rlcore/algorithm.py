"""The parts around a loss: an aggregation, a KL estimator with an option, and a mismatch correction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from acme_rlcore import GATE
from rlcore.api import Aggregation, Correction, KlEstimator, LossBatch, Normalisers

if TYPE_CHECKING:
    import torch


class RootOfLength(Aggregation):
    """A weight of 1 / sqrt(length) for each token, divided by the sum of these weights over the step."""

    def weights(self, lengths: np.ndarray, in_loss: np.ndarray, group: np.ndarray, normalisers: Normalisers) -> np.ndarray:
        """Return float64[N]."""
        roots = np.where(in_loss, np.sqrt(lengths), 0.0)
        return np.repeat(roots / (max(roots.sum(), 1.0) * np.maximum(lengths, 1)), lengths)


class BoundedOptions(BaseModel):
    """Options of ``acme_bounded``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slope: float = Field(default=2.0, gt=0, description="the largest slope")


class BoundedKl(KlEstimator):
    """slope^2 * (sqrt(1 + (d / slope)^2) - 1), d = reference - policy."""

    def __init__(self, options: BoundedOptions) -> None:
        self.slope = options.slope

    def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """Return [n]."""
        return self.slope**2 * ((1.0 + ((reference - logprobs) / self.slope) ** 2).sqrt() - 1.0)


class Gate(Correction, spec=GATE):
    """Masks tokens whose ratio is outside the range, and keeps the weight of the others."""

    def __init__(self, bounds: tuple[float, float]) -> None:
        self.low, self.high = bounds

    def weights(self, batch: LossBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weights [n] and the masked tokens bool[n]."""
        ratio = (batch.old_logprobs - batch.rollout_logprobs).detach().exp()
        cut = (ratio < self.low) | (ratio > self.high)
        return (~cut).to(ratio.dtype), cut
