"""pass@k: the advantage of a response for the best of k, averaged over every k responses of its group.

Source: Pass@K Policy Optimization (PKPO, arXiv 2505.15201), equation 33.
"""

from __future__ import annotations

from math import comb

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import AdvantageEstimator, AdvantageSpec, RewardBatch


class PassAtKOptions(BaseModel):
    """``k``: the best of how many responses counts; at most the group's size is used."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    k: int = Field(default=4, ge=2, description="the best of so many responses counts; k = 1 is the plain reward: use rloo or group_mean")


class PassAtK(AdvantageEstimator):
    """N times the mean over all sets I of k responses of [i in I] * (max of r over I - max of r over I without i).

    This is the leave-one-out form s^(loo-1) of the paper times the group's size N. The MEAN of A * grad log p over the group is then an
    unbiased estimate of the gradient of E[max of k rewards] (pass@k if rewards are 0/1). The advantage is never below 0: a response that is
    not the best of any set gets 0. Sorted upwards, with r_j the runner-up: A_i = N / C(N, k) * sum over j < i of C(j - 1, k - 2) * (r_i -
    r_j). A group smaller than k uses k = N; a group of one gets 0. Source: PKPO, equation 33.
    """

    def __init__(self, options: PassAtKOptions | None = None) -> None:
        self.k = (options or PassAtKOptions()).k

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return float64[R]."""
        advantages = np.zeros(len(batch.rewards))
        for group in np.unique(batch.group[batch.in_statistics]):
            members = np.flatnonzero((batch.group == group) & batch.in_statistics)
            members = members[np.argsort(batch.rewards[members], kind="stable")]
            if len(members) > 1:
                advantages[members] = _sorted_advantages(batch.rewards[members], min(self.k, len(members)))
        return advantages


def _sorted_advantages(rewards: np.ndarray, k: int) -> np.ndarray:
    """Return float64[N] for rewards float64[N] in rising order, 2 <= k <= N."""
    size = len(rewards)
    # Integers until the quotient, since binomials of large groups do not fit a float.
    weights = np.array([size * comb(runner_up, k - 2) / comb(size, k) for runner_up in range(size)])
    gains = np.tril(rewards[:, None] - rewards[None, :], -1)
    advantages: np.ndarray = gains @ weights
    return advantages


ESTIMATOR = AdvantageSpec(
    name="pass_at_k",
    target="rlcore_plugin_grpo.pass_at_k:PassAtK",
    config="rlcore_plugin_grpo.pass_at_k:PassAtKOptions",
    summary="The gain of the best of k from a response, over every k of its group: the unbiased gradient of pass@k",
    source="PKPO (arXiv 2505.15201), equation 33; not the deviation-scaled form of arXiv 2508.10751, nor verl's grpo_passk (best alone)",
    aliases=("pkpo",),
)
