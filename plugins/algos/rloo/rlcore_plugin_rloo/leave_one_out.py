"""The leave-one-out baseline: each rollout is compared with the mean of the others in its group. Pure numpy, float64.

Source: Ahmadian et al., "Back to Basics" (arXiv 2402.14740), RLOO; Kool et al. 2019. Axes: ``R`` rollouts, ``N`` policy tokens.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlcore.api import AdvantageEstimator, RewardBatch
from rlcore.learning import group_mean, group_size
from rlcore_plugin_rloo import ESTIMATOR

__all__ = ["LeaveOneOut"]


class LeaveOneOut(AdvantageEstimator, spec=ESTIMATOR):
    """(R - mean) n / (n - 1) over the n rollouts of the group that count: R minus the mean of the other n - 1; 0 for a group of one.

    R is the reward. If the run has KL in the reward, ``kl_coeff`` times the KL summed over the rollout's tokens is subtracted.
    """

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return float64[R]; 0 outside the statistics."""
        shaped = replace(batch, rewards=_shaped(batch))
        n = group_size(shaped)
        advantages: np.ndarray = (shaped.rewards - group_mean(shaped)) * (n / np.maximum(n - 1, 1))
        return np.where(shaped.in_statistics, advantages, 0.0)


def _shaped(batch: RewardBatch) -> np.ndarray:
    """Return float64[R]: rewards minus the penalty of the whole rollout; 0 outside the statistics."""
    rewards = np.where(batch.in_statistics, batch.rewards, 0.0)
    if batch.kl is None or not batch.kl_coeff:
        return rewards
    counted = np.repeat(batch.in_statistics, batch.lengths)
    row = np.repeat(np.arange(len(rewards)), batch.lengths)
    penalty = np.bincount(row, weights=np.where(counted, batch.kl, 0.0), minlength=len(rewards))
    shaped: np.ndarray = rewards - batch.kl_coeff * penalty
    return shaped
