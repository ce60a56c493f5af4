"""ReMax: the reward of the prompt's greedy completion is the baseline.

Source: ReMax (arXiv 2310.10505).
"""

from __future__ import annotations

import numpy as np

from rlcore.api import AdvantageEstimator, AdvantageSpec, AlgorithmSpec, RewardBatch
from rlcore_plugin_reinforce.returns import reward_to_go

_PAPER = "ReMax (arXiv 2310.10505)"

_NOTES = """\
baseline    b = reward of one greedy completion of the prompt, generated in addition to the sampled ones; it never trains
reward      x_t = -kl_coeff * KL_t, plus r_i at the last token: KL in the reward if kl_coeff > 0; the default is 0
KL          KL_t = log p_old(y_t) - log p_ref(y_t) (k1)
advantage   A_t = (sum of x from t on) - b; without KL: r_i - b at every token
per token   l_t = -A_t log p(y_t), at the sampling temperature
loss        mean over the rollouts in the loss of (sum over their tokens / max_new_tokens) (constant_length)

Differences from GRPO: the baseline costs one more completion per prompt and does not depend on the others, so one sampled completion per
prompt is enough (-g 1); no deviation; no ratio, so exactly on-policy data; a sum over tokens.

Where others differ:
- a group of one is compared with the greedy completion, so its advantage need not be 0; it is 0 if both get the same reward.
- a prompt whose greedy completion was not judged has no baseline: its rollouts get 0 instead of the raw reward.
- the paper samples one completion per prompt; any number is allowed here. Sampling and greedy decoding have the same limits.
- verl: the same formula, with its clipped loss and token-mean by default. TRL, OpenRLHF and NeMo-RL have no ReMax.
- one optimizer step per batch and max_staleness 0 are part of the algorithm: the loss has no ratio that would correct for an older policy.
  For such data choose --loss clipped.
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
    summary="Greedy completion as baseline, plain policy gradient summed over tokens; KL in the reward if kl_coeff > 0",
    source=_PAPER,
    estimator="remax",
    loss="gpg",
    defaults={
        "algorithm.loss_variation": ("constant_length", f"{_PAPER}: a sum over tokens; a constant divisor is ours"),
        "algorithm.kl_kind": ("k1", f"{_PAPER}: the reward of RLHF minus the log of the ratio to the reference"),
        "algorithm.kl_coeff": (0.0, "ours: off, since a verifiable reward needs no anchor; the paper tunes it to the task"),
        "algorithm.kl_in": ("reward", f"{_PAPER}: the reward of RLHF minus the log of the ratio to the reference"),
        "algorithm.updates_per_batch": (1, f"{_PAPER}: one gradient step on samples of the current policy"),
        "algorithm.epochs_per_batch": (1, f"{_PAPER}: one gradient step on samples of the current policy"),
        "schedule.max_staleness": (0, f"{_PAPER}: one gradient step on samples of the current policy"),
    },
    notes=_NOTES,
)


class ReMax(AdvantageEstimator, spec=ESTIMATOR):
    """Reward-to-go minus the greedy reward; 0 outside the statistics, and if the group's greedy rollout was not judged."""

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return float64[N]."""
        if batch.greedy is None:
            raise ValueError("ReMax needs the rewards of greedy rollouts, which the batch lacks")
        baseline = np.repeat(batch.greedy[batch.group], batch.lengths)
        counted = np.repeat(batch.in_statistics, batch.lengths) & np.isfinite(baseline)
        return np.where(counted, reward_to_go(batch) - np.where(counted, baseline, 0.0), 0.0)
