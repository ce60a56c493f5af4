"""RLOO as a recipe: the leave-one-out estimator with the core's clipped surrogate."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import AdvantageSpec, AlgorithmSpec, hookimpl

rlcore_api = "2.0"

_PAPER = "Back to Basics (arXiv 2402.14740)"

_NOTES = """\
reward      R_i = r_i - kl_coeff * sum over t of KL_t: KL in the reward if kl_coeff > 0; the default is 0
KL          KL_t = log p_old(y_t) - log p_ref(y_t) (k1)
advantage   A_i = R_i - mean of the other N - 1 rewards = R_i N / (N - 1) - mean(R) N / (N - 1), over the group of a prompt
ratio       w_t = exp(log p(y_t) - log p_old(y_t)), at the sampling temperature
per token   l_t = -min(w_t A_i, clip(w_t, 1 - clip_eps_low, 1 + clip_eps_high) A_i)
loss        mean over the rollouts in the loss of (sum over their tokens / max_new_tokens) (constant_length)

Differences from GRPO: the baseline does not contain the rollout's own reward, so it is unbiased; there is no deviation; the loss is a sum
over tokens instead of a mean, since the paper's gradient is that of the whole completion; KL is in the reward if kl_coeff > 0, not in the
loss.

Where others differ:
- N is the number of rollouts of the group that count, so groups may be ragged. A group of one has no others: 0, as in TRL; verl's loop
  keeps its raw reward (its vectorised form gives 0), OpenRLHF and ColossalAI give NaN.
- TRL's RLOOTrainer clips the ratio of SUMMED log probabilities; here, in verl, OpenRLHF and ColossalAI it is per token. With one optimizer
  step per batch all of them have the paper's gradient, which has no ratio at all.
- KL: the paper subtracts it from the reward of the whole completion, as here and in TRL. OpenRLHF subtracts it token by token from the
  advantage, after the baseline; ColossalAI puts k3 into the loss (here: --kl-in loss --kl-kind k3).
- ColossalAI takes the mean over tokens of a rollout, then over rollouts: --loss-variation sample_level.
"""

_DEFAULTS = {
    "algorithm.loss_variation": ("constant_length", f"{_PAPER}: the gradient of log p(y|x), a sum over tokens; a constant divisor is ours"),
    "algorithm.kl_kind": ("k1", f"{_PAPER}: R(x, y) = r(x, y) - beta log(p(y|x) / p_ref(y|x))"),
    "algorithm.kl_coeff": (0.0, "ours: off, since a verifiable reward needs no anchor; the paper tunes it to the task"),
    "algorithm.kl_in": ("reward", f"{_PAPER}: R(x, y) = r(x, y) - beta log(p(y|x) / p_ref(y|x))"),
    "algorithm.options.clip_eps_low": (0.2, "PPO (arXiv 1707.06347), section 6.1; without effect with one optimizer step per batch"),
    "algorithm.options.clip_eps_high": (0.2, "PPO (arXiv 1707.06347), section 6.1; without effect with one optimizer step per batch"),
}

ESTIMATOR = AdvantageSpec(
    name="rloo",
    target="rlcore_plugin_rloo.leave_one_out:LeaveOneOut",
    summary="Reward minus the mean reward of the other rollouts of the group",
    source=f"{_PAPER}, RLOO; Kool et al. 2019, Buy 4 REINFORCE Samples",
    accepts_kl=True,
)


@hookimpl
def rlcore_register_advantage_estimators() -> Sequence[AdvantageSpec]:
    """Return the estimator ``rloo``."""
    return [ESTIMATOR]


@hookimpl
def rlcore_register_algorithms() -> Sequence[AlgorithmSpec]:
    """Return the recipe ``rloo``."""
    return [
        AlgorithmSpec(
            name="rloo",
            summary="Leave-one-out baseline, clipped surrogate summed over tokens; KL in the reward if kl_coeff > 0",
            source=f"{_PAPER}, RLOO",
            estimator="rloo",
            loss="clipped",
            defaults=_DEFAULTS,
            notes=_NOTES,
        )
    ]
