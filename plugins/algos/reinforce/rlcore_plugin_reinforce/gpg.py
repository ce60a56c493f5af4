"""GPG: the policy gradient itself, with the group's mean as baseline. The batch is rescaled for groups without signal.

Source: GPG (arXiv 2504.02546): J = E[-log p(y_t) A_i], A_i = alpha (r_i - mean(r)) / F_norm, F_norm = 1, alpha = B / (B - M).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlcore.api import AdvantageEstimator, AdvantageSpec, AlgorithmSpec, Loss, LossBatch, LossSpec, RewardBatch
from rlcore.learning import group_mean, group_std

if TYPE_CHECKING:
    import torch

_PAPER = "GPG (arXiv 2504.02546)"
_ROUNDING = 1e-12
"""Deviation of a group, as a share of its mean, below which its rewards count as equal."""

_NOTES = """\
signal      B rollouts train; M of them are in groups whose rewards are all equal, which have no gradient; alpha = B / (B - M)
advantage   A_i = alpha * (r_i - mean(r)), over the group of a prompt (F_norm = 1)
per token   l_t = -A_i log p(y_t), at the sampling temperature; no ratio, no clip, no KL penalty, no reference model
loss        sum of l_t over every token in the loss / number of those tokens (token_level)

Differences from GRPO: no surrogate, no deviation, and alpha. Without alpha, a batch in which half of the groups are all right or all wrong
would have half the step size.

Where others differ:
- alpha: the paper counts rollouts in groups without signal. verl counts rewards that are not 0, which is another number (with rewards 0 and
  1, alpha becomes the inverse of the accuracy). If no group has signal, everything is exactly 0.
- alpha is computed once over the whole generation batch, from the rollouts that train. A group that the filter masked and a truncated
  response that is filtered count in neither number, since neither is in the mean of the loss.
- a group of one has no signal and gives 0; verl keeps its raw reward.
- the paper's code adds 1e-5 to 1 / alpha; this is not needed here, since alpha is used only if some group has signal.
- the paper resamples until a share beta_th = 0.6 of the batch has signal. Here --filter-range 0.01 0.99 --dynamic-batching resamples until
  the whole batch has, and alpha is then 1.
- F_norm = std: the paper's ablation finds 1 better; --estimator group_norm --loss gpg gives the other.
- the loss's value does not measure progress; only its gradient matters. verl's loss "gpg" is the same. TRL, OpenRLHF and NeMo-RL have no
  GPG (NeMo-RL's disable_ppo_ratio is the same loss).
- one optimizer step per batch and fresh data are part of the algorithm: the loss has no ratio that would correct for an older policy. More
  steps are refused, and so is max_staleness above 0 without --mismatch-correction, which weights stale tokens.
"""

ESTIMATOR = AdvantageSpec(
    name="gpg",
    target="rlcore_plugin_reinforce.gpg:GroupPolicyGradient",
    summary="Reward minus the group's mean, times rollouts over rollouts in groups with signal",
    source=f"{_PAPER}, advantage and accurate gradient estimation (alpha)",
)

LOSS = LossSpec(
    name="gpg",
    target="rlcore_plugin_reinforce.gpg:PolicyGradient",
    summary="Plain policy gradient: minus advantage times log probability; on-policy data only",
    source=f"{_PAPER}, objective; Williams 1992 (REINFORCE)",
    on_policy=True,
)

RECIPE = AlgorithmSpec(
    name="gpg",
    summary="Plain policy gradient with the group's mean as baseline, rescaled for groups without signal",
    source=_PAPER,
    estimator="gpg",
    loss="gpg",
    defaults={
        "algorithm.loss_variation": ("token_level", f"{_PAPER}, objective: a sum over all tokens over their number"),
        "algorithm.kl_coeff": (0.0, f"{_PAPER}: no reference model, no KL constraint"),
        "algorithm.updates_per_batch": (1, f"{_PAPER}: the gradient of the original objective, without a ratio"),
        "algorithm.epochs_per_batch": (1, f"{_PAPER}: the gradient of the original objective, without a ratio"),
        "schedule.max_staleness": (0, f"{_PAPER}: the gradient of the original objective, without a ratio"),
    },
    notes=_NOTES,
)


class GroupPolicyGradient(AdvantageEstimator):
    """alpha (r - mean) over the group, alpha = rollouts that count / those of them in groups with different rewards."""

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return float64[R]; 0 outside the statistics."""
        centred = np.where(batch.in_statistics, batch.rewards - group_mean(batch), 0.0)
        # Count only rollouts that train: those that the group filter masks are already out of the loss's denominators.
        counted = batch.in_statistics & batch.in_loss
        # Weighted sums of rewards that should be equal differ by rounding errors, which are not a signal.
        signal = group_std(batch) > _ROUNDING * np.abs(group_mean(batch))
        alpha = int(counted.sum()) / max(int((counted & signal).sum()), 1)
        advantages: np.ndarray = alpha * centred
        return advantages


class PolicyGradient(Loss, spec=LOSS):
    """-A log p(y_t): REINFORCE, whose gradient is the policy gradient if the current policy generated the data."""

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        """[n] -> [n]."""
        return -batch.advantages * logprobs
