"""Advantage estimators that recipes of every family share, and the group statistics from which others are built.

Pure numpy in float64, once per global batch. Axes: ``R`` rollouts, ``G`` groups. Statistics cover the rollouts of a group that are
``in_statistics``. The other rollouts get advantage 0, and so do groups of one and groups with equal rewards (exactly 0, whatever the
rewards' rounding).
"""

from __future__ import annotations

import numpy as np

from rlcore.contracts.batches import RewardBatch
from rlcore.contracts.interfaces import AdvantageEstimator

__all__ = ["GroupMean", "GroupNorm", "group_mean", "group_size", "group_std", "group_sum"]


class GroupNorm(AdvantageEstimator):
    """(r - mean) / (std + 1e-4) over the group, std unbiased (N - 1).

    Source: GRPO (arXiv 2402.03300), section 4.1.2, outcome supervision.
    """

    epsilon = 1e-4

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return the advantages, float64[R]."""
        return _centred(batch) / (group_std(batch) + self.epsilon)


class GroupMean(AdvantageEstimator):
    """r - mean over the group, without a deviation.

    Source: Dr. GRPO (arXiv 2503.20783), section 3.2.
    """

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return the advantages, float64[R]."""
        return _centred(batch)


def group_size(batch: RewardBatch) -> np.ndarray:
    """Return int64[R]: the number of rollouts in the rollout's group that are in the statistics."""
    return group_sum(batch, np.ones(len(batch.rewards))).astype(np.int64)


def group_mean(batch: RewardBatch) -> np.ndarray:
    """Return float64[R]: the mean reward of the rollout's group; 0 if the group has no rollout in the statistics.

    The mean is computed relative to the group's first reward, so that the mean of equal rewards is that reward bit for bit.
    """
    base = _first(batch)
    mean: np.ndarray = base + group_sum(batch, batch.rewards - base) / np.maximum(group_size(batch), 1)
    return mean


def group_std(batch: RewardBatch) -> np.ndarray:
    """Return float64[R]: the unbiased standard deviation of the rollout's group; 0 for a group of one."""
    squares = group_sum(batch, np.square(batch.rewards - group_mean(batch)))
    std: np.ndarray = np.sqrt(squares / np.maximum(group_size(batch) - 1, 1))
    return std


def _centred(batch: RewardBatch) -> np.ndarray:
    return np.where(batch.in_statistics, batch.rewards - group_mean(batch), 0.0)


def group_sum(batch: RewardBatch, values: np.ndarray) -> np.ndarray:
    """Return [R] -> float64[R]: the sum over the rollouts of the group that are in the statistics."""
    sums = np.bincount(batch.group, weights=np.where(batch.in_statistics, values, 0.0))
    spread: np.ndarray = np.asarray(sums, np.float64)[batch.group]
    return spread


def _first(batch: RewardBatch) -> np.ndarray:
    """Return float64[R]: the reward of the first rollout of the group that is in the statistics, 0 if there is none."""
    groups, first = np.unique(batch.group[batch.in_statistics], return_index=True)
    table = np.zeros(batch.group.max(initial=-1) + 1)
    table[groups] = batch.rewards[batch.in_statistics][first]
    spread: np.ndarray = table[batch.group]
    return spread
