"""Problems of runs, their signs, and what to try: the only table of rules and thresholds.

A rule reads figures of ``metrics.jsonl`` over its window, which is a number of last updates. It returns its sentence if it finds a problem.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rlcore_plugin_tools.health.metric_history import MetricHistory, MissingMetric

__all__ = ["RULES", "Rule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. ``look(past, rule)`` returns the sentence, None if all is well, or raises MissingMetric. ``bound`` is the threshold that
    ``reason`` justifies. While one of the rules in ``behind`` is reported, this one is not, since it would repeat that report."""

    name: str
    reads: tuple[str, ...]
    window: int
    bound: float
    sign: str
    reason: str
    look: Callable[[MetricHistory, Rule], str | None]
    behind: tuple[str, ...] = ()


def _reward_zero(past: MetricHistory, rule: Rule) -> str | None:
    if any(past.values("reward/mean", rule.window)):
        return None
    if _known(past, "reward/std", rule) > rule.bound:  # rewards of both signs
        return None
    return (
        f"the reward was 0 in each of the last {rule.window} updates, so nothing is learned: read a few answers in rollouts/ of the "
        "run; if they are wrong, begin with easier prompts, a better base model or a reward that gives partial "
        "credit; if they are right, the reward parses them wrongly"
    )


def _no_spread(past: MetricHistory, rule: Rule) -> str | None:
    same = past.mean("groups/zero_spread", rule.window)
    if same < rule.bound:
        return None
    reward = past.mean("reward/mean", rule.window)
    return (
        f"all answers to a prompt got the same reward in {same:.0%} of the groups of the last {rule.window} updates (mean reward "
        f"{reward:.3g}), so almost nothing is learned: use prompts that are neither always nor never solved, more answers to each "
        "(-g), or a higher -temp"
    )


def _entropy_collapse(past: MetricHistory, rule: Rule) -> str | None:
    began, now = past.began_with("entropy/sampled"), past.mean("entropy/sampled", rule.window)
    if began <= _ALREADY_SURE or now >= rule.bound * began or _known(past, "reward/accuracy", rule) >= _SOLVED:
        return None
    return (
        f"the entropy of the answers fell to {now:.2g} nats a token, from {began:.2g} in the first updates: the policy gives the same "
        "answer each time and no longer explores: lower -lr, raise -temp, or add --entropy-coeff 0.001 or a KL penalty (-kl 0.01), from an "
        "earlier checkpoint"
    )


def _ratio_mean(past: MetricHistory, rule: Rule) -> str | None:
    ratio = past.mean("ratio_mean", rule.window)
    if abs(ratio - 1) <= rule.bound:
        return None
    return (
        f"the mean probability ratio was {ratio:.3g} over the last {rule.window} updates, and it should be 1 on average, within 0.9 to "
        "1.1: the policy in training differs from the one that sampled: lower -lr or --max-staleness, and see whether sampler_gap is small"
    )


def _ratio_outside(past: MetricHistory, rule: Rule) -> str | None:
    if any(past.values("staleness/max", rule.window)):  # stale data is expected to have such tokens
        return None
    outside = past.mean("ratio_outside", rule.window)
    if outside <= rule.bound:
        return None
    several = past.mean("optimizer_steps", rule.window) > 1
    advice = (
        "lower -lr, or take fewer optimizer steps per batch (--updates-per-batch, --epochs-per-batch)"
        if several
        else "see sampler_gap: engine and trainer disagree"
    )
    return (
        f"{outside:.0%} of the tokens of fresh data had a probability ratio outside 0.9 to 1.1 over the last {rule.window} updates: the "
        f"policy moves too far on one batch: {advice}"
    )


def _starved_trainer(past: MetricHistory, rule: Rule) -> str | None:
    waited = past.share("time/trainer/waiting_for_data", "time/trainer/", rule.window)
    if past.alternating or waited <= rule.bound:  # then each waits for the other
        return None
    advice = "more producers (-i), a larger -ibs, or fewer trainers (-t)"
    for category, better in _BLOCKED.items():
        with suppress(MissingMetric):
            if past.share(f"time/producers/{category}", "time/producers/", rule.window) > _OWN_FAULT:
                advice = better
    return f"the trainer waited for data in {waited:.0%} of its time over the last {rule.window} updates: {advice}"


def _starved_producers(past: MetricHistory, rule: Rule) -> str | None:
    waited = past.share("time/producers/back_pressure", "time/producers/", rule.window)
    if past.alternating or waited <= rule.bound:
        return None
    return (
        f"producers waited for the trainer in {waited:.0%} of their time over the last {rule.window} updates: fewer producers (-i) or "
        "more trainers (-t); a larger -tmbs or --tokens-per-forward makes an update faster if memory allows it"
    )


def _cut_off(past: MetricHistory, rule: Rule) -> str | None:
    cut = past.mean("truncated", rule.window)
    if cut < rule.bound:
        return None
    most = past.setting("sampling", "max_new_tokens")
    return (
        f"{cut:.0%} of the answers of the last {rule.window} updates were cut off at -mnt {most}, before they could end: raise "
        "-mnt, ask for short answers in the prompt (-s), or check that the model's stop token is the tokenizer's"
    )


def _length_explodes(past: MetricHistory, rule: Rule) -> str | None:
    before, now = (past.mean("response_length/mean", rule.window, before=at) for at in (rule.window, 0))
    if before <= 0 or now < rule.bound * before or now < 1.5 * past.began_with("response_length/mean"):
        return None
    if past.mean("reward/mean", rule.window) > past.mean("reward/mean", rule.window, before=rule.window):
        return None
    return (
        f"answers grew from {before:.0f} to {now:.0f} tokens within {2 * rule.window} updates, and the reward did not rise with "
        "them: lower -lr, or punish length (--soft-over-length-punishment)"
    )


def _length_collapses(past: MetricHistory, rule: Rule) -> str | None:
    began, now = past.began_with("response_length/mean"), past.mean("response_length/mean", rule.window)
    if now > rule.bound * began or past.mean("reward/mean", rule.window) > past.began_with("reward/mean"):
        return None
    return (
        f"answers shrank to {now:.1f} tokens, from {began:.0f} in the first updates, and the reward did not rise: the reward may pay for "
        "giving up early; read answers in rollouts/ of the run, lower -lr, or add a KL penalty (-kl 0.01)"
    )


def _kl_explodes(past: MetricHistory, rule: Rule) -> str | None:
    kl = past.mean("kl_reference", rule.window)
    if kl <= rule.bound:
        return None
    coefficient = past.setting("algorithm", "kl_coeff")
    return (
        f"the policy is {kl:.2g} nats a token away from its reference (mean of the last {rule.window} updates), so it may have "
        f"lost its language: lower -lr, or raise -kl, which is {coefficient:g}, and continue from an earlier checkpoint"
    )


def _few_samples_count(past: MetricHistory, rule: Rule) -> str | None:
    size = past.mean("effective_sample_size", rule.window)
    if size >= rule.bound:
        return None
    return (
        f"{size:.0%} of the tokens carry the weight of all tokens (effective sample size, mean of the last {rule.window} updates): the "
        "data is too far from the policy: lower --max-staleness or -lr"
    )


def _steps_skipped(past: MetricHistory, rule: Rule) -> str | None:
    skipped, made = (past.total([name], rule.window) for name in ("skipped_steps", "optimizer_steps"))
    if skipped <= rule.bound * (skipped + made):
        return None
    return (
        f"{skipped:.0f} of the last {skipped + made:.0f} optimizer steps were skipped because their gradient was not finite: lower -lr, "
        "raise --warmup-steps, or compute with higher precision (--training-dtype float32)"
    )


_ALREADY_SURE = 0.02
"""Nats a token: a policy that begins with so little entropy cannot collapse."""
_SOLVED = 0.9
"""Accuracy at which low entropy is acceptable."""
_OWN_FAULT = 0.3
"""Share of the producers' time in one kind of wait above which that wait is the bottleneck."""
_EPISODES = "a larger --max-staleness, --oversampling, or --partial-rollouts"
_BLOCKED = {
    "blocked_by_tools": f"producers wait for tools of episodes: {_EPISODES}",
    "blocked_by_environments": f"producers wait for episodes: {_EPISODES}",
    "blocked_by_rewards": "producers wait for the reward: more --reward-workers",
}
"""Advice by category of the producers' time."""


def _known(past: MetricHistory, name: str, rule: Rule) -> float:
    """Return the mean of a figure that makes a rule more exact and that not every run has; 0 if it is missing."""
    try:
        return past.mean(name, rule.window)
    except MissingMetric:
        return 0.0


RULES: tuple[Rule, ...] = (
    Rule(
        name="reward-zero",
        reads=("reward/mean", "reward/std"),
        window=10,
        bound=0.0,
        sign="the reward is 0 in every update, without spread",
        reason="ten updates of 256 answers show a base model that is right once in 1000 answers with a probability of 92 %",
        look=_reward_zero,
    ),
    Rule(
        name="no-spread",
        reads=("groups/zero_spread", "reward/mean"),
        window=10,
        bound=0.98,
        sign="share of groups whose rewards are all the same",
        reason="only differences within a group give an advantage; with 2 % of the groups an update costs 50 times more than it seems",
        look=_no_spread,
        behind=("reward-zero",),
    ),
    Rule(
        name="entropy-collapse",
        reads=("entropy/sampled", "reward/accuracy"),
        window=10,
        bound=0.1,
        sign="entropy as a share of that of the first 10 updates, while accuracy is below 0.9",
        reason="entropy halves in many healthy runs; at a tenth the answers of a group are all the same",
        look=_entropy_collapse,
        behind=("no-spread",),
    ),
    Rule(
        name="ratio-mean",
        reads=("ratio_mean",),
        window=5,
        bound=0.1,
        sign="distance of the mean ratio from 1",
        reason="under the sampler the ratio has mean 1 exactly, however stale the data is: any difference is noise, or another policy",
        look=_ratio_mean,
    ),
    Rule(
        name="ratio-outside",
        reads=("ratio_outside", "staleness/max", "optimizer_steps"),
        window=5,
        bound=0.2,
        sign="share of tokens of fresh data whose ratio is outside 0.9 to 1.1",
        reason="the usual clip range is 0.2: with a fifth of the tokens half way there, clipping determines the result",
        look=_ratio_outside,
        behind=("ratio-mean",),
    ),
    Rule(
        name="starved-trainer",
        reads=("time/trainer/waiting_for_data", "time/trainer/…", "time/producers/blocked_by_…"),
        window=20,
        bound=0.5,
        sign="share of the trainer's time, if max_staleness is above 0",
        reason="above one half, another producer saves more time than it costs",
        look=_starved_trainer,
    ),
    Rule(
        name="starved-producers",
        reads=("time/producers/back_pressure", "time/producers/…"),
        window=20,
        bound=0.75,
        sign="share of the producers' time, if max_staleness is above 0",
        reason="some idle time of producers keeps the trainer busy; three quarters is too much",
        look=_starved_producers,
    ),
    Rule(
        name="cut-off",
        reads=("truncated",),
        window=5,
        bound=0.9,
        sign="share of answers that end at the length limit",
        reason="a truncated response has no final answer; base models produce some of them, but not nine in ten",
        look=_cut_off,
    ),
    Rule(
        name="length-explodes",
        reads=("response_length/mean", "reward/mean"),
        window=10,
        bound=2.0,
        sign="length relative to that of the window before, and above its initial value, while the reward does not rise",
        reason="answers that learn to reason grow over hundreds of updates; doubling within 20 is degeneration",
        look=_length_explodes,
        behind=("cut-off",),
    ),
    Rule(
        name="length-collapses",
        reads=("response_length/mean", "reward/mean"),
        window=10,
        bound=0.25,
        sign="length as a share of that of the first 10 updates, while the reward is not higher than in these",
        reason="useful brevity raises the reward",
        look=_length_collapses,
    ),
    Rule(
        name="kl-explodes",
        reads=("kl_reference",),
        window=10,
        bound=0.5,
        sign="nats a token to the reference",
        reason="runs that keep their language stay below 0.1; at 0.5 an answer of 100 tokens is e^50 times likelier than for the reference",
        look=_kl_explodes,
    ),
    Rule(
        name="few-samples-count",
        reads=("effective_sample_size",),
        window=10,
        bound=0.3,
        sign="effective sample size",
        reason="below one third, the noise of an update costs more than stale data saves",
        look=_few_samples_count,
        behind=("ratio-mean",),
    ),
    Rule(
        name="steps-skipped",
        reads=("skipped_steps", "optimizer_steps"),
        window=10,
        bound=0.2,
        sign="share of optimizer steps that are skipped",
        reason="one overflow is bad luck; every fifth step is a gradient that does not fit the number format",
        look=_steps_skipped,
    ),
)
"""The rules, in the order of their reports."""
