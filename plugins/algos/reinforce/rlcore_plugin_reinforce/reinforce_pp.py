"""REINFORCE++: the reward-to-go of every token, with KL in the reward, normalised over the whole batch.

Source: REINFORCE++ (arXiv 2501.03262): reward r 1[t = T] - beta KL_t, advantage its sum from t on, normalised over the global batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlcore.api import AdvantageEstimator, AdvantageSpec, AlgorithmSpec, RewardBatch
from rlcore_plugin_reinforce.returns import counted_tokens, reward_to_go, whiten

if TYPE_CHECKING:
    from rlcore_plugin_reinforce.options import ReinforcePlusPlusOptions

_PAPER = "REINFORCE++ (arXiv 2501.03262)"

_NOTES = """\
reward      x_t = -kl_coeff * KL_t, plus r_i at the last token; KL_t = log p_old(y_t) - log p_ref(y_t) (k1)
return      G_t = x_t + gamma * G_(t+1)
advantage   A_t = (G_t - mean(G)) / (std(G) + 1e-4), over all tokens of the global batch that count; std unbiased (n - 1)
ratio       w_t = exp(log p(y_t) - log p_old(y_t)), at the sampling temperature
per token   l_t = -min(w_t A_t, clip(w_t, 1 - clip_eps_low, 1 + clip_eps_high) A_t)
loss        sum of l_t over every token in the loss / number of those tokens (token_level)

Differences from GRPO: no baseline within a group (one completion per prompt is enough), advantages per token, one scale for the whole
batch instead of one per group, KL in the reward instead of the loss.

Where others differ:
- deviation: the paper does not specify it. It is unbiased here, as in verl; OpenRLHF and NeMo-RL take the biased one: a factor sqrt(n / (n
  - 1)) in tokens. verl takes rsqrt(var + 1e-8), OpenRLHF and NeMo-RL clamp the variance at 1e-8; 1e-4 on the deviation is of that size.
- rollouts outside the statistics enter neither mean nor deviation and get 0. OpenRLHF and NeMo-RL give masked positions (0 - mean) / std;
  verl sets them to zero.
- tool output between two answers is not a policy token: it neither discounts nor stops the return. verl of January 2026 lost the reward
  before it.
- if all returns are equal, so that the batch has no signal, every advantage is exactly 0.
- TRL has no REINFORCE++.
"""

ESTIMATOR = AdvantageSpec(
    name="reinforce++",
    target="rlcore_plugin_reinforce.reinforce_pp:ReinforcePlusPlus",
    config="rlcore_plugin_reinforce.options:ReinforcePlusPlusOptions",
    summary="Discounted reward-to-go with KL in the reward, normalised over all tokens of the batch",
    source=f"{_PAPER}, version 9, equations 4 and 5",
    accepts_kl=True,
    per="token",
    group_baseline=False,
)

RECIPE = AlgorithmSpec(
    name="reinforce++",
    summary="Reward-to-go with KL in the reward, normalised over the whole batch; clipped surrogate per token; no group baseline",
    source=_PAPER,
    estimator="reinforce++",
    loss="clipped",
    defaults={
        "algorithm.loss_variation": ("token_level", f"{_PAPER}, PPO-clip objective: an expectation over tokens"),
        "algorithm.kl_coeff": (0.01, "the ColossalAI trainer's default for GRPO; the paper tunes it to the task"),
        "algorithm.kl_kind": ("k1", f"{_PAPER}, version 9, equation 4: log of the ratio to the reference"),
        "algorithm.kl_in": ("reward", f"{_PAPER}, version 9, equation 4: the penalty is part of the advantage"),
        "algorithm.options.gamma": (1.0, f"{_PAPER}, version 9, equation 4: the advantage is the undiscounted sum"),
        "algorithm.options.clip_eps_low": (0.2, "PPO (arXiv 1707.06347), section 6.1"),
        "algorithm.options.clip_eps_high": (0.2, "PPO (arXiv 1707.06347), section 6.1"),
    },
    notes=_NOTES,
)


class ReinforcePlusPlus(AdvantageEstimator, spec=ESTIMATOR):
    """The whitened reward-to-go; 0 outside the statistics, and if all returns of the batch are equal."""

    def __init__(self, options: ReinforcePlusPlusOptions | None = None) -> None:
        self.gamma = 1.0 if options is None else options.gamma

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return float64[N]."""
        return whiten(reward_to_go(batch, self.gamma), counted_tokens(batch))
