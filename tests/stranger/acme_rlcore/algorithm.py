"""Small parts of an update: an aggregation, a KL estimator, a schedule and a filter with an option each, and a mismatch correction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from acme_rlcore import GATE
from rlcore.api import Aggregation, Correction, Group, GroupFilter, KlEstimator, LearningRateSchedule, LossBatch, Normalisers

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


class StairsOptions(BaseModel):
    """Options of ``acme_stairs``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stairs: int = Field(default=2, ge=1, description="parts of the run, each with a rate of its own")


class Stairs(LearningRateSchedule):
    """Parts of equal length; each halves the share of the one before."""

    def __init__(self, options: StairsOptions) -> None:
        self.stairs = options.stairs

    def share(self, step: int, steps: int) -> float:
        """Return a power of 1/2."""
        return 0.5 ** min(step * self.stairs // steps, self.stairs - 1)


class ShortestOptions(BaseModel):
    """Options of ``acme_shortest``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    short: int = Field(default=1, ge=1, description="answers of a group that train")


class Shortest(GroupFilter):
    """Keeps the shortest answers of a group."""

    def __init__(self, options: ShortestOptions) -> None:
        self.short = options.short

    def keep(self, group: Group) -> list[bool]:
        """Rank the rollouts that can train."""
        places = [place for place, score in enumerate(group.scores) if score.in_loss]
        short = sorted(places, key=lambda place: group.rollouts[place].length)[: self.short]
        return [place in short for place in range(len(group.rollouts))]


class Gate(Correction, spec=GATE):
    """Masks tokens whose ratio is outside the range, and keeps the weight of the others."""

    def __init__(self, bounds: tuple[float, float]) -> None:
        self.low, self.high = bounds

    def weights(self, batch: LossBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weights [n] and the masked tokens bool[n]."""
        ratio = (batch.old_logprobs - batch.rollout_logprobs).detach().exp()
        cut = (ratio < self.low) | (ratio > self.high)
        return (~cut).to(ratio.dtype), cut
