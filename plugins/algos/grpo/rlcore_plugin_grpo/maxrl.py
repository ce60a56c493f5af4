"""MaxRL: the advantage relative to the group's mean reward, so that hard prompts have the weight of maximum likelihood.

Source: Maximum Likelihood Reinforcement Learning (arXiv 2602.02710), its estimator.
"""

from __future__ import annotations

import numpy as np

from rlcore.api import AdvantageEstimator, AdvantageSpec, AlgorithmSpec, RewardBatch
from rlcore.learning import group_mean, group_size

_PAPER = "MaxRL (arXiv 2602.02710)"


class MaxRl(AdvantageEstimator):
    """(r - mean) / mean over the group, 0 if the mean is not above 0.

    With 0/1 rewards and K successes of N this is N/K - 1 for a success and -1 for a failure: the mean of the scores of the successes minus
    the mean of all. On average that is the gradient of log p, expanded in failures to order N - 1.

    It is meant for rewards >= 0. Rewards below 0 (for example from a length penalty) can bring the mean near 0, where the quotient would
    explode. The divisor is therefore at least max|r| / N; the mean of N rewards >= 0 is never smaller.

    Source: MaxRL, its estimator.
    """

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return float64[R]."""
        mean = group_mean(batch)
        floor = _group_largest(batch) / np.maximum(group_size(batch), 1)
        trains = batch.in_statistics & ~(mean <= 0.0)  # a NaN mean is not 0, and the core refuses its result
        divisor = np.where(trains, np.maximum(mean, floor), 1.0)
        advantages: np.ndarray = np.where(trains, (batch.rewards - mean) / divisor, 0.0)
        return advantages


def _group_largest(batch: RewardBatch) -> np.ndarray:
    """Return float64[R]: the largest absolute reward in the rollout's group, among rollouts in the statistics."""
    table = np.zeros(int(batch.group.max(initial=-1)) + 1)
    with np.errstate(invalid="ignore"):  # NaN stays NaN, and the core reports it
        np.maximum.at(table, batch.group, np.where(batch.in_statistics, np.abs(batch.rewards), 0.0))
    spread: np.ndarray = table[batch.group]
    return spread


ESTIMATOR = AdvantageSpec(
    name="maxrl",
    target="rlcore_plugin_grpo.maxrl:MaxRl",
    summary="Reward minus the group's mean, over the group's mean; 0 if nothing succeeded",
    source=f"{_PAPER}, its estimator",
)

_NOTES = """\
advantage   A_i = (r_i - mean(r)) / mean(r), over the group of a prompt; 0 if mean(r) <= 0
ratio       w_t = exp(log p(y_t) - log p_old(y_t))
per token   l_t = -min(w_t A_i, clip(w_t, 1 - clip_eps_low, 1 + clip_eps_high) A_i)
loss        sum over tokens / max_new_tokens, mean over the rollouts in the loss (constant_length)

Against GRPO: divided by the mean, not the deviation. With 0/1 rewards and success rate p, GRPO weights a prompt's gradient by 1/sqrt(p(1 -
p)), MaxRL by 1/p, as for the gradient of log p, of maximum likelihood, expanded to order N - 1. A prompt that is never solved gives
nothing.

Rewards must be >= 0, with 0 for failure, and the estimator is not shift-invariant: a format bonus on every answer flattens it. A group
whose penalties bring the mean near 0 divides by max|r|/N instead, so that |A| stays below 2N.

Where others differ:
- the divisor of at least max|r|/N is ours, and never acts on rewards >= 0. prime-rl's max_rl has none, so it explodes if negative rewards
  leave a small positive mean; it computes in float32 and gives 0 if the mean is not above 0, as here.
- a response without a sampled token counts in the mean; prime-rl drops it first. A group of one gives 0.
- the clip is ours: the paper's gradient has no ratio. With one optimizer step on fresh data every ratio is 1 and the two are the same. The
  division by max_new_tokens, a constant factor, is ours too. prime-rl trains with its own loss, which drops tokens instead of clipping.
- TRL, verl, OpenRLHF and ColossalAI have none. The paper's estimator sums a response's score over its tokens; token means as in verl would
  change the weights of responses, a constant length does not.
"""

RECIPE = AlgorithmSpec(
    name="maxrl",
    summary="Advantages relative to the group's mean reward: policy gradient of (nearly) log success rate",
    source=f"{_PAPER}, its estimator",
    estimator="maxrl",
    loss="clipped",
    aliases=("max_rl",),
    defaults={
        "algorithm.loss_variation": ("constant_length", f"{_PAPER}: the score of a whole response is a sum over its tokens"),
        "algorithm.kl_coeff": (0.0, f"{_PAPER}: the estimator has no penalty"),
        "algorithm.options.clip_eps_low": (0.2, "PPO (arXiv 1707.06347), section 6.1; does not act on fresh data"),
        "algorithm.options.clip_eps_high": (0.2, "PPO (arXiv 1707.06347), section 6.1; does not act on fresh data"),
    },
    notes=_NOTES,
)
