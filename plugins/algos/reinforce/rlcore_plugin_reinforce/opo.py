"""OPO: the baseline that minimises the variance of the gradient. The length of a completion approximates the squared norm of its gradient.

Source: On-Policy RL with Optimal Reward Baseline (arXiv 2505.23585): b = sum(l_i r_i) / sum(l_i).
"""

from __future__ import annotations

import numpy as np

from rlcore.api import AdvantageEstimator, AdvantageSpec, AlgorithmSpec, RewardBatch
from rlcore.learning import group_mean, group_sum

_PAPER = "OPO (arXiv 2505.23585)"

_NOTES = """\
baseline    b = sum(L_i r_i) / sum(L_i), over the group of a prompt; L_i is the number of policy tokens of rollout i
advantage   A_i = r_i - b
per token   l_t = -A_i log p(y_t), at the sampling temperature
loss        mean over the rollouts in the loss of (sum over their tokens / max_new_tokens) (constant_length)

Differences from GRPO: long completions have more weight in the baseline; no deviation; no ratio, no clip, no KL penalty; exactly on-policy
data; a sum over tokens instead of a mean, since the squared norm of that gradient grows with the length.

Where others differ:
- a group of one gets 0, as in the formula (b = r); verl keeps its raw reward.
- a rollout outside the statistics enters neither sum; an empty completion has weight 0. A group without a token gets 0.
- verl has the same estimator with its clipped loss and token-mean by default. TRL, OpenRLHF and NeMo-RL have no OPO.
- one optimizer step per batch and max_staleness 0 are part of the algorithm: the loss has no ratio that would correct for an older policy.
"""

ESTIMATOR = AdvantageSpec(
    name="opo",
    target="rlcore_plugin_reinforce.opo:OptimalBaseline",
    summary="Reward minus the group's mean reward weighted by length",
    source=f"{_PAPER}, optimal reward baseline",
)

RECIPE = AlgorithmSpec(
    name="opo",
    summary="Length-weighted baseline, plain policy gradient summed over tokens, exactly on-policy",
    source=_PAPER,
    estimator="opo",
    loss="gpg",
    defaults={
        "algorithm.loss_variation": (
            "constant_length",
            f"{_PAPER}: the gradient of log p(y|x), a sum over tokens; a constant divisor is ours",
        ),
        "algorithm.kl_coeff": (0.0, f"{_PAPER}: no regularisation terms"),
        "algorithm.entropy_coeff": (0.0, f"{_PAPER}: no regularisation terms"),
        "algorithm.updates_per_batch": (1, f"{_PAPER}: exact on-policy training"),
        "algorithm.epochs_per_batch": (1, f"{_PAPER}: exact on-policy training"),
        "schedule.max_staleness": (0, f"{_PAPER}: exact on-policy training"),
    },
    notes=_NOTES,
)


class OptimalBaseline(AdvantageEstimator):
    """r - sum(L r) / sum(L) over the group; 0 outside the statistics and for groups without a token."""

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return float64[R]."""
        # Computed around the group's mean, which is exact for equal rewards, so that these give exactly 0.
        around = np.where(batch.in_statistics, batch.rewards - group_mean(batch), 0.0)
        weight = batch.lengths.astype(np.float64)
        total = group_sum(batch, weight)
        advantages = around - group_sum(batch, weight * around) / np.where(total > 0, total, 1.0)
        return np.where(batch.in_statistics & (total > 0), advantages, 0.0)
