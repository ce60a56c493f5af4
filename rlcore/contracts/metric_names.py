"""Every figure of metrics.jsonl that rlcore's own parts write: its name, its unit, what it says. Trackers get the same numbers.

``docs/metrics.md`` is generated from this table, and a test compares it with what runs write. A loss of yours reports what it likes, as
``loss/<name>``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

__all__ = ["METRICS", "Metric", "metric_of"]


@dataclass(frozen=True, slots=True)
class Metric:
    """``name`` holds ``<task>``, ``<name>`` … in the place of what differs; ``when``: what it depends on, "" if it is always there."""

    name: str
    unit: str
    text: str
    when: str = ""


_EVALUATED = "with held-out tasks, at each evaluation"
_SEVERAL = "with eval_samples above 1"

METRICS: tuple[Metric, ...] = (
    Metric("step", "count", "updates that were made, this one included"),
    Metric("seconds", "s", "wall clock from the last update to this one, evaluations and checkpoints included"),
    Metric("tokens_per_second", "tokens/s", "tokens of the sampled responses that were trained on, over `seconds`"),
    Metric(
        "mfu", "share", "model FLOPs of the update over what the trainers' devices could do in its time", "on devices whose peak is known"
    ),
    # rewards
    Metric("reward/mean", "reward", "mean reward of the sampled rollouts that count in the statistics"),
    Metric("reward/std", "reward", "standard deviation of the same rewards"),
    Metric("reward/group_std", "reward", "standard deviation within a group, mean over groups of two or more: what advantages are made of"),
    Metric("reward/accuracy", "share", "mean accuracy of the same rollouts", "if a reward gives one"),
    Metric("reward/format", "share", "rollouts whose form was right", "if a reward looks at the form"),
    Metric("reward/part/<name>", "reward", "mean of one named part of the reward", "if rewards name parts"),
    Metric("reward/outcome/<outcome>", "share", "of what was judged since the last update, the verdicts that ended so: `ok`, `wrong` …"),
    Metric("reward/latency_<percentile>", "s", "`p50`, `p99`: how long the verdicts took"),
    Metric("reward/timeouts", "count", "verdicts that took too long"),
    Metric("reward/<reward>/outcome/<outcome>", "share", "the same of one reward", "with several rewards"),
    Metric("reward/<reward>/latency_<percentile>", "s", "the same of one reward", "with several rewards"),
    Metric("reward/<reward>/timeouts", "count", "the same of one reward", "with several rewards"),
    Metric("groups", "count", "groups of the update"),
    Metric("groups/masked", "count", "groups that the filter took out of the loss"),
    Metric("groups/zero_spread", "share", "groups whose rewards are all the same, so that a group baseline learns nothing of them"),
    Metric("groups/filtered", "count", "groups that the filter took out on the way to this update", "with a filter"),
    Metric("filter/accuracy", "share", "mean of what the filter looked at, over all groups that it saw for this update", "with a filter"),
    Metric("filter/too_easy", "share", "of these groups, those above filter_range", "with a filter"),
    Metric("filter/too_hard", "share", "of these groups, those below it", "with a filter"),
    # responses
    Metric("response_length/mean", "tokens", "mean length of the sampled responses"),
    Metric("response_length/max", "tokens", "the longest"),
    Metric("response_length/<percentile>", "tokens", "`p10`, `p50`, `p90`: percentiles of the lengths"),
    Metric("response_tokens", "tokens", "tokens of all sampled responses"),
    Metric("truncated", "share", "responses that were cut off at the length limit"),
    Metric("turns/mean", "count", "answers of the policy in a conversation", "with several turns"),
    Metric("temperature", "", "mean temperature at which they were sampled"),
    Metric("cut_share", "share", "tokens of the groups that oversampling cut", "with oversampling"),
    Metric("entropy/sampled", "nats", "mean of -log p of the sampled tokens under the sampler: an estimate of its entropy"),
    # the update
    Metric("loss", "", "what the optimizer lowers, penalties included, mean over optimizer steps"),
    Metric("policy_loss", "", "the same without KL and entropy terms"),
    Metric(
        "loss/<name>",
        "",
        "what the loss itself reports, mean over policy tokens: for clipped losses `loss/clip_fraction`, `loss/clip_low`, "
        "`loss/clip_high`, the shares of tokens whose gradient the clip stopped, and at which bound",
    ),
    Metric("entropy", "nats", "entropy of the policy per token", "with entropy_coeff or a loss that needs it"),
    Metric("kl_old", "nats", "k3 estimate of KL(old, policy) per token: how far the policy moved within the update"),
    Metric("kl_reference", "nats", "k3 estimate of KL(policy, reference) per token", "with a reference model"),
    Metric("ratio_mean", "", "mean probability ratio of policy to old policy"),
    Metric("ratio_outside", "share", "policy tokens whose ratio is outside 0.9 to 1.1"),
    Metric("sampler_gap", "nats", "mean absolute difference between trainer's and sampler's log probability of a token"),
    Metric("effective_sample_size", "share", "(sum w)^2 / (n sum w^2) with w = policy / sampler probability of a token: 1 on fresh data"),
    Metric("mismatch_weight", "", "mean weight of the correction", "with a mismatch correction"),
    Metric("mismatch_cut", "share", "tokens on which the range of the correction acted", "with a mismatch correction"),
    Metric("skipped_rollouts", "count", "rollouts left out by skip_threshold"),
    Metric("skipped_steps", "count", "optimizer steps whose gradient was not finite, and that were skipped"),
    Metric("optimizer_steps", "count", "optimizer steps that were made"),
    Metric("learning_rate", "", "of the last optimizer step"),
    Metric("grad_norm", "", "norm of the gradient before clipping, mean over optimizer steps"),
    Metric("tokens", "tokens", "tokens in the loss"),
    Metric("rollouts_in_loss", "count", "rollouts in the loss; those of the batch that are not were masked"),
    Metric("advantage_abs_mean", "", "mean absolute advantage of the tokens in the loss"),
    # the schedule
    Metric("staleness/mean", "versions", "how many updates older than the policy the rollouts are"),
    Metric("staleness/max", "versions", "the oldest"),
    Metric(
        "time/trainer/<category>",
        "s",
        "seconds of all trainers by category since the last update: `waiting_for_data` and "
        "`waiting_for_weights` are the bubble; the latter is what a publish costs",
    ),
    Metric("time/producers/<category>", "s", "seconds of all producers by category since the last update"),
    # evaluation
    Metric("eval/<task>", "share", "avg@k: mean accuracy of the k completions of each prompt", _EVALUATED),
    Metric("eval/<task>/<bound>", "share", "`low`, `high`: 95 % interval of it over prompts", _EVALUATED),
    Metric("eval/<task>/pass@<k>", "share", "unbiased estimate that one of k completions is right", _SEVERAL),
    Metric("eval/<task>/maj@<k>", "share", "that the answer that most of k completions give is right", _SEVERAL),
    Metric("eval/<task>/pass@<k>/<bound>", "share", "95 % interval", _SEVERAL),
    Metric("eval/<task>/maj@<k>/<bound>", "share", "95 % interval", _SEVERAL),
    Metric("eval/<task>/reward", "reward", "mean reward", _EVALUATED),
    Metric("eval/<task>/length", "tokens", "mean length of the completions", _EVALUATED),
    Metric("eval/<task>/truncated", "share", "completions that were cut off at the length limit", _EVALUATED),
    Metric("eval/<task>/failed", "count", "completions without a verdict, which count neither for nor against", "if there are any"),
)


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], Metric], ...]:
    """A name without a placeholder is found before those with one."""
    ordered = sorted(METRICS, key=lambda metric: ("<" in metric.name, -metric.name.count("/")))
    return tuple((re.compile(re.sub(r"<[^>]+>", _part, re.escape(metric.name)) + r"\Z"), metric) for metric in ordered)


def _part(found: re.Match[str]) -> str:
    return {"<bound>": "(low|high)", "<k>": r"\d+", "<percentile>": r"p\d+", "<name>": ".+"}.get(found[0], "[^/]+")


def metric_of(name: str) -> Metric | None:
    """What a figure of ``metrics.jsonl`` is; None if it is of a plugin that rlcore does not know."""
    return next((metric for pattern, metric in _patterns() if pattern.match(name)), None)
