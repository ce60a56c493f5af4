"""ReMax: the reward of the prompt's greedy completion is the baseline.

Source: ReMax (arXiv 2310.10505).
"""

from __future__ import annotations

import numpy as np

from rlcore.api import AdvantageEstimator, AdvantageSpec, AlgorithmSpec, RewardBatch
from rlcore_plugin_reinforce.returns import reward_to_go

_PAPER = "ReMax (arXiv 2310.10505)"

_NOTES = """\
baseline    b = reward of one greedy completion of the prompt, generated beside the sampled ones; it never trains
reward      x_t = -kl_coeff * KL_t, plus r_i at the last token: KL in the reward where kl_coeff > 0, and by default it is 0
KL          KL_t = log p_old(y_t) - log p_ref(y_t) (k1)
advantage   A_t = (sum of x from t on) - b; without KL: r_i - b at every token
per token   l_t = -A_t log p(y_t), at the sampling temperature
loss        mean over the rollouts in the loss of (sum over their tokens / max_new_tokens) (constant_length)

What differs from GRPO: the baseline costs one more completion a prompt, and does not depend on the others, so that one sampled
completion a prompt is enough (-g 1); no deviation; no ratio, so exactly on-policy data; a sum over tokens.

Where others differ:
- a group of one is compared with the greedy completion, so its advantage need not be 0; it is 0 where both earn the same.
- a prompt whose greedy completion was not judged has no baseline: 0 for its rollouts, rather than the raw reward.
- the paper samples one completion a prompt; any number is taken here. It samples and decodes greedily at the same limits.
- verl: the same formula, with its clipped loss and token-mean by default. TRL, OpenRLHF and NeMo-RL have no ReMax.
- one optimizer step a batch and max_staleness 0 are part of it: the loss has no ratio that would correct for an older policy. For such
  data choose --loss clipped.
"""

ESTIMATOR = AdvantageSpec(
    name="remax",
    target="rlcore_plugin_reinforce.remax:ReMax",
    summary="Reward minus the reward of the prompt's greedy completion",
    source=_PAPER,
    accepts_kl=True,
    per="token",
    needs_greedy=True,
    group_baseline=False,
)

RECIPE = AlgorithmSpec(
    name="remax",
    summary="Greedy completion as baseline, plain policy gradient summed over tokens; KL in the reward where kl_coeff > 0",
    source=_PAPER,
    estimator="remax",
    loss="gpg",
    defaults={
        "algorithm.loss_variation": ("constant_length", f"{_PAPER}: a sum over tokens; a constant divisor is ours"),
        "algorithm.kl_kind": ("k1", f"{_PAPER}: the reward of RLHF less the log of the ratio to the reference"),
        "algorithm.kl_coeff": (0.0, "ours: off, for a reward that can be verified needs no anchor; the paper tunes it to the task"),
        "algorithm.kl_in": ("reward", f"{_PAPER}: the reward of RLHF less the log of the ratio to the reference"),
        "algorithm.updates_per_batch": (1, f"{_PAPER}: one gradient step on samples of the present policy"),
        "algorithm.epochs_per_batch": (1, f"{_PAPER}: one gradient step on samples of the present policy"),
        "schedule.max_staleness": (0, f"{_PAPER}: one gradient step on samples of the present policy"),
    },
    notes=_NOTES,
)


class ReMax(AdvantageEstimator, spec=ESTIMATOR):
    """Reward-to-go minus the greedy reward; 0 outside the statistics and where the group's greedy rollout was not judged."""

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """float64[N]."""
        if batch.greedy is None:
            raise ValueError("ReMax needs the rewards of greedy rollouts, and the batch came without them")
        baseline = np.repeat(batch.greedy[batch.group], batch.lengths)
        counted = np.repeat(batch.in_statistics, batch.lengths) & np.isfinite(baseline)
        return np.where(counted, reward_to_go(batch) - np.where(counted, baseline, 0.0), 0.0)
