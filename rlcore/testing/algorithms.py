"""The plainest estimator and the plainest loss that the suites accept. Neither imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlcore.contracts.batches import LossBatch, RewardBatch
from rlcore.contracts.interfaces import AdvantageEstimator, Loss

if TYPE_CHECKING:
    import torch

__all__ = ["FakeEstimator", "FakeLoss"]


class FakeEstimator(AdvantageEstimator):
    """A rollout's reward minus its group's mean, over the rollouts in statistics; 0 for the others."""

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """float64[R]."""
        advantages = np.zeros(len(batch.rewards))
        for group in np.unique(batch.group[batch.in_statistics]):
            members = np.flatnonzero((batch.group == group) & batch.in_statistics)
            # Relative to the first member, so that equal rewards cancel exactly whatever their rounding.
            relative = batch.rewards[members] - batch.rewards[members[0]]
            advantages[members] = relative - relative.mean()
        return advantages


class FakeLoss(Loss):
    """``-advantage * ratio``: the policy gradient with importance ratio, not clipped (the ratio's logarithm is capped at 20)."""

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        """[n] -> [n]."""
        return -batch.advantages * (logprobs - batch.old_logprobs).clamp(max=20.0).exp()
