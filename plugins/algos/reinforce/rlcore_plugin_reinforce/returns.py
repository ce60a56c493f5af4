"""The reward-to-go of a token, and the whitening of a whole batch. Pure numpy, float64.

Axes: ``R`` rollouts, ``N`` policy tokens on the flat axis.
"""

from __future__ import annotations

import numpy as np

from rlcore.api import RewardBatch

__all__ = ["counted_tokens", "penalty", "reward_to_go", "whiten"]

EPSILON = 1e-4
"""Added to the deviation, as in the core's ``group_norm``, so that rounding noise never becomes an advantage."""


def counted_tokens(batch: RewardBatch) -> np.ndarray:
    """Return bool[N]: tokens of the rollouts in the statistics."""
    return np.repeat(batch.in_statistics, batch.lengths)


def penalty(batch: RewardBatch) -> np.ndarray:
    """Return float64[N]: ``kl_coeff`` times the KL of each token; 0 outside the statistics, and if the run has no KL in the reward."""
    if batch.kl is None or not batch.kl_coeff:
        return np.zeros(int(batch.offsets[-1]))
    return batch.kl_coeff * np.where(counted_tokens(batch), batch.kl, 0.0)


def reward_to_go(batch: RewardBatch, gamma: float = 1.0) -> np.ndarray:
    """Return float64[N]: G_t = x_t + gamma G_(t+1), where x_t is minus the penalty, plus the rollout's reward at its last token.

    0 outside the statistics. One pass over the positions counted from the end, all rollouts at once.
    """
    returns = -penalty(batch)
    ends = batch.offsets[1:]
    whole = batch.in_statistics & (batch.lengths > 0)
    returns[ends[whole] - 1] += batch.rewards[whole]
    for place in range(2, int(batch.lengths.max(initial=0)) + 1):
        here = ends[batch.lengths >= place] - place
        returns[here] += gamma * returns[here + 1]
    return returns


def whiten(values: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Return float64[N] for float64[N] and bool[N]: (value - mean) / (std + 1e-4) over the counted tokens, 0 for the others.

    The deviation is unbiased (n - 1). The mean is taken around the first value, so that equal values give exactly 0.
    """
    kept = values[counted]
    result = np.zeros(len(values))
    if len(kept):
        around = kept - kept[0]
        centred = around - around.mean()
        std = np.sqrt(np.square(centred).sum() / max(len(kept) - 1, 1))
        result[counted] = centred / (std + EPSILON)
    return result
