"""REINFORCE++ with a baseline: the reward minus the mean of its group, minus the KL of the token, normalised over the whole batch.

Source: REINFORCE++ (arXiv 2501.03262), REINFORCE++ w/ baseline; the KL in the advantage as in the ColossalAI trainer.
"""

from __future__ import annotations

import numpy as np

from rlcore.api import AdvantageEstimator, AdvantageSpec, AlgorithmSpec, RewardBatch
from rlcore.learning import group_mean, group_size
from rlcore_plugin_reinforce.returns import penalty, whiten

_PAPER = "REINFORCE++ (arXiv 2501.03262)"

_NOTES = """\
centred     c_i = r_i - mean(r), over the group of a prompt
penalised   u_t = c_i - kl_coeff * KL_t; KL_t = log p_old(y_t) - log p_ref(y_t) (k1), of that token alone
advantage   A_t = (u_t - mean(u)) / (std(u) + 1e-4), over all tokens of the global batch that count; std unbiased (n - 1)
ratio       w_t = exp(log p(y_t) - log p_old(y_t)), at the sampling temperature
per token   l_t = -min(w_t A_t, clip(w_t, 1 - clip_eps_low, 1 + clip_eps_high) A_t); no KL in the loss
loss        sum of l_t over every token in the loss / number of those tokens (token_level)

Differences from GRPO: one scale for the whole batch instead of one per group, a mean over tokens, KL in the advantage instead of the loss.

Where others differ:
- a group of one has no baseline: it is left out of the statistics and gets 0. verl keeps its raw reward, OpenRLHF gets 0 before whitening.
  A larger group of equal rewards stays in, so its tokens get -mean(u) / std(u) and their KL, as in the paper's formula.
- if all rewards of the batch are equal within their groups and there is no KL, every advantage is exactly 0.
- deviation: unbiased, as in verl; OpenRLHF and NeMo-RL take the biased one with the variance clamped at 1e-8.
- KL: the paper puts k2 into the loss (version 9, equation 8; here: --kl-in loss --kl-kind k2). OpenRLHF sums the penalty from the token on;
  ColossalAI takes k3 of the token. Here it is k1 of the token.
- ColossalAI's second stage computes 1 / std and divides by it, so its advantages are multiplied by the deviation. Ours are divided.
- whitening is over the GLOBAL batch, once, whatever the number of ranks and micro-batches. TRL has no REINFORCE++ with a baseline.
"""

ESTIMATOR = AdvantageSpec(
    name="reinforce_ppb",
    aliases=("reinforce++-baseline",),
    target="rlcore_plugin_reinforce.reinforce_ppb:ReinforcePlusPlusBaseline",
    summary="Reward minus the group's mean, minus the token's KL, normalised over all tokens of the batch",
    source=f"{_PAPER}, version 9, section 3.2, equations 6 and 7",
    accepts_kl=True,
    per="token",
)

RECIPE = AlgorithmSpec(
    name="reinforce_ppb",
    aliases=("reinforce++-baseline",),
    summary="Group mean as baseline, KL in the advantage, normalised over the whole batch; clipped surrogate per token",
    source=f"{_PAPER}, REINFORCE++ w/ baseline",
    estimator="reinforce_ppb",
    loss="clipped",
    defaults={
        "algorithm.loss_variation": ("token_level", f"{_PAPER}, PPO-clip objective: an expectation over tokens, as the whitening"),
        "algorithm.kl_coeff": (0.01, "the ColossalAI trainer's default for GRPO; the paper tunes it to the task"),
        "algorithm.kl_kind": ("k1", f"{_PAPER}, version 9, equation 4, of REINFORCE++: log of the ratio to the reference"),
        "algorithm.kl_in": ("reward", "the ColossalAI trainer: in the advantage, none in the loss"),
        "algorithm.options.clip_eps_low": (0.2, "PPO (arXiv 1707.06347), section 6.1"),
        "algorithm.options.clip_eps_high": (0.2, "PPO (arXiv 1707.06347), section 6.1"),
    },
    notes=_NOTES,
)


class ReinforcePlusPlusBaseline(AdvantageEstimator, spec=ESTIMATOR):
    """The whitened centred reward; 0 outside the statistics and for groups in which fewer than two rollouts count."""

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return float64[N]."""
        compared = batch.in_statistics & (group_size(batch) > 1)
        centred = np.where(compared, batch.rewards - group_mean(batch), 0.0)
        return whiten(np.repeat(centred, batch.lengths) - penalty(batch), np.repeat(compared, batch.lengths))
