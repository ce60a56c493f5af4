"""Dr. GRPO as a recipe: GRPO without two biases, the division by the group's deviation and that by the response's length."""

from __future__ import annotations

from rlcore.api import AlgorithmSpec

_PAPER = "Dr. GRPO (arXiv 2503.20783)"

_NOTES = """\
advantage   A_i = r_i - mean(r), over the group of a prompt
ratio       w_t = exp(log p(y_t) - log p_old(y_t))
per token   l_t = -min(w_t A_i, clip(w_t, 1 - clip_eps_low, 1 + clip_eps_high) A_i)
loss        sum over tokens / max_new_tokens, mean over the rollouts in the loss (constant_length)

Against GRPO: no deviation (it favours prompts that are nearly always or nearly never solved), no 1/|o_i| (it lets wrong answers grow long),
no KL penalty.

Where others differ:
- TRL: loss_type "dr_grpo" sets only the denominator (all rows x max_completion_length, including fully masked rows); scale_rewards "none"
  removes the deviation. Here only rollouts with a token in the loss count.
- verl: norm_adv_by_std_in_grpo False and seq-mean-token-sum-norm; in the January 2026 snapshot that mode lacks the mean over sequences (sum
  / scale), 0.9.1 has it.
- OpenRLHF: its dr_grpo is only the advantage; its loss stays a token mean.
- a group of one is 0 here and in TRL; verl keeps its raw reward.
"""

RECIPE = AlgorithmSpec(
    name="dr_grpo",
    summary="Reward minus the group's mean, clipped surrogate summed over tokens and divided by a constant length",
    source=f"{_PAPER}, section 3.2",
    estimator="group_mean",
    loss="clipped",
    aliases=("dr-grpo",),
    defaults={
        "algorithm.loss_variation": ("constant_length", f"{_PAPER}, section 3.2 and appendix A: the generation budget as the constant"),
        "algorithm.kl_coeff": (0.0, f"{_PAPER}, section 3: no reference model with a verifiable reward"),
        "algorithm.options.clip_eps_low": (0.2, "PPO (arXiv 1707.06347), section 6.1"),
        "algorithm.options.clip_eps_high": (0.2, "PPO (arXiv 1707.06347), section 6.1"),
    },
    notes=_NOTES,
)
