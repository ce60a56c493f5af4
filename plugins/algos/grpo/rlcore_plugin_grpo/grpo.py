"""GRPO as a recipe: parts that the core registers, and the defaults of the paper."""

from __future__ import annotations

from rlcore.api import AlgorithmSpec

_PAPER = "DeepSeekMath (arXiv 2402.03300)"

_NOTES = """\
advantage   A_i = (r_i - mean(r)) / (std(r) + 1e-4), over the group of a prompt; std unbiased (N - 1)
ratio       w_t = exp(log p(y_t) - log p_old(y_t)), at the sampling temperature
per token   l_t = -min(w_t A_i, clip(w_t, 1 - clip_eps_low, 1 + clip_eps_high) A_i) + kl_coeff * k3_t
k3          exp(d) - 1 - d, with d = log p_ref(y_t) - log p(y_t)
loss        mean over the rollouts in the loss of the mean over their tokens (sample_level)

Against GRPO as published: the same formula; an epsilon in the deviation, a KL coefficient of 0.01 instead of the 0.04 of the paper's runs,
and the mean is over all rollouts of the step, not over groups first (equivalent for groups of one size).

Where others differ:
- deviation: the paper gives no epsilon; ours is 1e-4, like TRL's. verl and NeMo-RL add 1e-6, OpenRLHF 1e-9 (rounding then turns equal
  rewards of 0.7 into advantages of almost 1). Here equal rewards and groups of one give exactly 0; verl keeps the raw reward of a group of
  one.
- aggregation: TRL's loss_type "grpo" divides by all rows, including fully masked ones; here, as in verl, only rollouts with a token in the
  loss count. verl's default is token-mean, our token_level. TRL's is "dapo", which divides every optimizer step by the average number of
  tokens of the generation batch's steps: our token_level if a generation batch makes one step, but not a mean if it makes several.
- clip: no dual clip unless requested (--dual-clip 3 is verl's, which always has one); a ratio beyond exp(20) continues along its tangent,
  so it is finite and never flat.
- KL: k3 is unclamped up to d = 10 and continues along its tangent beyond. TRL does not clamp; verl clamps the value at 10, which stops the
  gradient beyond d = 2.6, where it is needed most.
"""

RECIPE = AlgorithmSpec(
    name="grpo",
    summary="Group-normalised advantages, clipped surrogate per sample, k3 penalty to the reference model",
    source=f"{_PAPER}, section 4.1",
    estimator="group_norm",
    loss="clipped",
    defaults={
        "algorithm.loss_variation": ("sample_level", f"{_PAPER}, equation 3: 1/G sum over i of 1/|o_i| sum over t"),
        "algorithm.kl_coeff": (0.01, "the ColossalAI trainer's default; the paper's experiments use 0.04 (section 4.2)"),
        "algorithm.kl_kind": ("k3", f"{_PAPER}, equation 4"),
        "algorithm.kl_in": ("loss", f"{_PAPER}, section 4.1.1: in the loss, not in the reward"),
        "algorithm.options.clip_eps_low": (0.2, "PPO (arXiv 1707.06347), section 6.1"),
        "algorithm.options.clip_eps_high": (0.2, "PPO (arXiv 1707.06347), section 6.1"),
    },
    notes=_NOTES,
)
