"""DAPO as a recipe: parts that the core registers, and the four techniques of the paper as settings of the core. Filters of groups."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import AlgorithmSpec, GroupFilterSpec, hookimpl

rlcore_api = "2.0"

_PAPER = "DAPO (arXiv 2503.14476)"
_TRAINER = "the ColossalAI trainer's default"

_NOTES = """\
advantage   A_i = (r_i - mean(r)) / (std(r) + 1e-4), over the group of a prompt; std unbiased (N - 1)
ratio       w_t = exp(log p(y_t) - log p_old(y_t)), at the sampling temperature
per token   l_t = -min(w_t A_i, clip(w_t, 1 - clip_eps_low, 1 + clip_eps_high) A_i); no KL penalty, no reference model
loss        sum of l_t over every token in the loss / number of those tokens (token_level)
filter      a group trains only if filter_range[0] < mean accuracy < filter_range[1]; others are replaced (dynamic_batching)
overlong    r_i += correct_score * clip((max_new_tokens - cache_length - L_i) / cache_length, -1, 0); a truncated response counts as
            max_new_tokens long, keeps its place in mean and std, and leaves the loss (filter_truncated_response)
skip        a rollout with any w_t above skip_threshold contributes nothing to the loss, stays in the denominator, and is counted

Differences from GRPO: the clip is wider upwards, the mean is over tokens instead of rollouts, there is no KL penalty, and groups that are
all right or all wrong are replaced by new ones.

Where others differ:
- the paper filters on 0 < correct answers < N; a range of 0.01 to 0.99 is equivalent for groups of up to 99 completions.
- the paper first filters truncated responses and later replaces this by a soft length penalty. Both are on here, as in the ColossalAI
  trainer: a truncated response changes the baseline of its group, but is not trained on.
- overlong: a longer response is never better. The penalty stays at -correct_score at the limit and beyond; ColossalAI's stops at the limit.
- TRL (loss_type "dapo") divides every optimizer step by the average number of tokens of the generation batch's steps. This is our
  token_level if a generation batch makes one step, but not a mean if it makes several. Here every step divides by its own tokens. verl's
  token-mean and OpenRLHF's token_level_loss are the same as our mean.
- verl always adds a dual clip (c = 3; here --dual-clip 3) and adds 1e-6 to the deviation. OpenRLHF adds 1e-9, so that rounding of equal
  rewards becomes a full-size advantage. Here equal rewards give exactly 0, and so does a group of one; verl keeps its raw reward.
- ColossalAI divides token losses by its token count + 1e-8; skip_threshold exists only there and here.
"""

_DEFAULTS = {
    "algorithm.options.clip_eps_low": (0.2, f"{_PAPER}, section 4.1; clip-higher: section 3.1, equation 10"),
    "algorithm.options.clip_eps_high": (0.28, f"{_PAPER}, section 4.1; clip-higher: section 3.1, equation 10"),
    "algorithm.loss_variation": ("token_level", f"{_PAPER}, section 3.3, equation 12"),
    "algorithm.kl_coeff": (0.0, f"{_PAPER}, section 2.3: the KL penalty is removed"),
    "algorithm.filter_by": ("accuracy", f"{_PAPER}, section 3.2, equation 11: by the number of equivalent answers"),
    "algorithm.filter_range": ((0.01, 0.99), f"{_PAPER}, section 3.2, equation 11: 0 < correct < N; these bounds: {_TRAINER}"),
    "algorithm.dynamic_batching": (True, f"{_PAPER}, section 3.2: sampling continues until the batch is full"),
    "algorithm.soft_over_length_punishment": (True, f"{_PAPER}, section 3.4, equation 13"),
    "algorithm.filter_truncated_response": (True, f"{_PAPER}, section 3.4: overlong filtering"),
    "algorithm.skip_threshold": (20.0, f"{_TRAINER}; not in the paper"),
}


@hookimpl
def rlcore_register_algorithms() -> Sequence[AlgorithmSpec]:
    """Return the recipe ``dapo``."""
    return [
        AlgorithmSpec(
            name="dapo",
            summary="GRPO with a wider upper clip, a mean over tokens, replaced groups and a length penalty; no KL penalty",
            source=f"{_PAPER}, section 3, equation 8",
            estimator="group_norm",
            loss="clipped",
            defaults=_DEFAULTS,
            notes=_NOTES,
        )
    ]


@hookimpl
def rlcore_register_filters() -> Sequence[GroupFilterSpec]:
    """Return filters that go with any algorithm."""
    return [
        GroupFilterSpec(
            name=name,
            target=f"rlcore_plugin_dapo.group_filters:{target}",
            config=f"rlcore_plugin_dapo.group_filters:{target}Options",
            summary=summary,
            source=source,
        )
        for name, target, summary, source in (
            (
                "reward_spread",
                "RewardSpread",
                "Removes groups whose rewards are nearly equal",
                f"{_PAPER}, section 3.2, for rewards other than right and wrong",
            ),
            (
                "best_of_n",
                "BestOfN",
                "Trains the rollouts of the highest rewards, and of the lowest if asked",
                "best: RAFT (arXiv 2304.06767), algorithm 1; best and worst: PODS (arXiv 2504.13818)",
            ),
            ("length_range", "LengthRange", "Trains responses of a range of lengths", ""),
        )
    ]
