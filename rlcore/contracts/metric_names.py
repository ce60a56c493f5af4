"""Every figure that rlcore's own parts write to metrics.jsonl: its name, its unit, its meaning. Trackers receive the same numbers.

The metrics page of the documentation is generated from this table, and a test compares the table with the records of runs. A plugin's loss
reports its own figures as ``loss/<name>``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

__all__ = ["METRICS", "Metric", "metric_of"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure. ``name`` has placeholders such as ``<task>`` or ``<name>`` for its variable parts.

    ``when`` is the condition for it, "" if it is always present.
    """

    name: str
    unit: str
    text: str
    when: str = ""


_EVALUATED = "with held-out tasks, at each evaluation"
_SEVERAL = "with eval_samples above 1"

METRICS: tuple[Metric, ...] = (
    Metric("step", "count", "updates so far, including this one"),
    Metric("seconds", "s", "wall-clock time since the last update, including evaluations and checkpoints"),
    Metric("tokens_per_second", "tokens/s", "tokens of the sampled responses in the update, divided by `seconds`"),
    Metric("mfu", "share", "model FLOPs of the update, divided by the peak of the trainers' devices in that time", "if that peak is known"),
    Metric("control/<setting>", "", "the value that controllers gave a setting, from the next update", "if it differs from the plan's"),
    Metric("control/seen_evaluation", "count", "step of the evaluation that controllers saw before this decision", "if there was one"),
    Metric("control/<request>", "", "1: controllers asked to `stop`, to `evaluate` or to `save`", "if they asked"),
    # rewards
    Metric("reward/mean", "reward", "mean reward of the sampled rollouts that count in the statistics"),
    Metric("reward/std", "reward", "standard deviation of the same rewards"),
    Metric("reward/group_std", "reward", "standard deviation within a group, mean over groups of two or more: the basis of advantages"),
    Metric("reward/accuracy", "share", "mean accuracy of the same rollouts", "if a reward gives one"),
    Metric("reward/format", "share", "rollouts with the correct format", "if a reward checks the format"),
    Metric("reward/part/<name>", "reward", "mean of one named part of the reward", "if rewards name parts"),
    Metric("reward/outcome/<outcome>", "share", "verdicts since the last update that have this outcome: `ok`, `wrong` …"),
    Metric("reward/latency_<percentile>", "s", "`p50`, `p99`: time of a verdict"),
    Metric("reward/timeouts", "count", "verdicts that reached their deadline"),
    Metric("reward/<reward>/outcome/<outcome>", "share", "the same for one reward", "with several rewards"),
    Metric("reward/<reward>/latency_<percentile>", "s", "the same for one reward", "with several rewards"),
    Metric("reward/<reward>/timeouts", "count", "the same for one reward", "with several rewards"),
    Metric("groups", "count", "groups of the update"),
    Metric("groups/masked", "count", "groups that the filter removed from the loss"),
    Metric("groups/zero_spread", "share", "groups with equal rewards, from which a group baseline learns nothing"),
    Metric("level/mean", "", "mean difficulty at which the prompts of the groups were made, 0 is the easiest", "with endless data"),
    Metric("groups/filtered", "count", "groups that the filter removed before this update", "with a filter"),
    Metric("filter/accuracy", "share", "mean accuracy that the filter read, over all its groups for this update", "with a filter"),
    Metric("filter/too_easy", "share", "share of these groups above filter_range: too many right answers", "with a filter"),
    Metric("filter/too_hard", "share", "share of these groups below it: too few", "with a filter"),
    Metric("filter/<filter>/rollouts", "count", "rollouts that one filter removed before this update", "with `algorithm.filters`"),
    Metric("filter/<filter>/groups", "count", "groups in which it left no rollout to train", "with `algorithm.filters`"),
    Metric("source/<source>/share", "share", "groups of the update that belong to this source", "with `[[sources]]`"),
    Metric("source/<source>/reward", "reward", "`reward/mean` of its rollouts", "with `[[sources]]`"),
    Metric("source/<source>/accuracy", "share", "`reward/accuracy` of its rollouts", "with `[[sources]]`"),
    Metric("source/<source>/response_length", "tokens", "`response_length/mean` of its rollouts", "with `[[sources]]`"),
    Metric("source/<source>/level", "", "`level/mean` of its groups", "with `[[sources]]`, if it is endless"),
    Metric("source/<source>/filtered", "count", "its groups that filters removed since the last update", "with `[[sources]]`"),
    Metric("source/<source>/failed", "count", "its groups that failed since the last update", "with `[[sources]]`"),
    # responses
    Metric("response_length/mean", "tokens", "mean length of the sampled responses"),
    Metric("response_length/max", "tokens", "length of the longest response"),
    Metric("response_length/<percentile>", "tokens", "`p10`, `p50`, `p90`: percentiles of the lengths"),
    Metric("response_tokens", "tokens", "tokens of all sampled responses"),
    Metric("truncated", "share", "responses that were cut off at the length limit"),
    Metric("turns/mean", "count", "mean number of answers of the policy in a conversation", "with several turns"),
    Metric("conversation/<name>", "", "mean of a number in the `extra` of the rollouts that have it; at most 32 names", "if there are any"),
    Metric("temperature", "", "mean sampling temperature of the responses"),
    Metric("cut_share", "share", "tokens of the groups that oversampling cut", "with oversampling"),
    Metric("entropy/sampled", "nats", "mean of -log p of the sampled tokens under the sampler: an estimate of its entropy"),
    # the update
    Metric("loss", "", "loss that the optimizer minimises, including penalties, mean over optimizer steps"),
    Metric("policy_loss", "", "the same loss without KL and entropy terms"),
    Metric(
        "loss/<name>",
        "",
        "figures of the loss itself, mean over policy tokens; clipped losses report clip fractions, the shares of tokens whose "
        "gradient the clip stopped: `loss/clip_fraction`, and at each bound `loss/clip_low`, `loss/clip_high`",
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
    Metric("skipped_steps", "count", "optimizer steps that were skipped because their gradient was not finite"),
    Metric("optimizer_steps", "count", "optimizer steps that were taken"),
    Metric("padding_share", "share", "positions of the forwards that are padding", "with the backend torch"),
    Metric("learning_rate", "", "learning rate of the last optimizer step"),
    Metric("grad_norm", "", "norm of the gradient before clipping, mean over optimizer steps"),
    Metric("tokens", "tokens", "tokens in the loss"),
    Metric("rollouts_in_loss", "count", "rollouts in the loss; the other rollouts of the batch were masked"),
    Metric("advantage_abs_mean", "", "mean absolute advantage of the tokens in the loss"),
    Metric(
        "source/<source>/<figure>",
        "",
        "the same for the tokens of one source, for `loss` to `mismatch_cut`, `skipped_rollouts` and `tokens` to `advantage_abs_mean`; its "
        "losses are its own means, which the step multiplies by its share of the prompts",
        "with `[[sources]]`",
    ),
    Metric("source/<source>/loss/<name>", "", "figures of the loss of a source", "with `[[sources]]`"),
    # the schedule
    Metric("staleness/mean", "versions", "mean number of versions by which the rollouts are older than the policy"),
    Metric(
        "staleness/max",
        "versions",
        "the same for the oldest rollout; above max_staleness with partial_rollouts only: older tokens do not train",
    ),
    Metric("in_flight", "count", "prompts in flight, on all producers, when the batch was complete", "with max_staleness above 0"),
    Metric("time/trainer/<category>", "s", "seconds of all trainers since the last update; the categories `waiting_…` are the bubble"),
    Metric(
        "time/producers/<category>",
        "s",
        "seconds of all producers since the last update; in `blocked_by_…` and `waiting_…` they only waited",
    ),
    # evaluation
    Metric("eval/<task>", "share", "avg@k: mean accuracy of the k completions of each prompt", _EVALUATED),
    Metric("eval/<task>/<bound>", "share", "`low`, `high`: its 95 % interval over prompts", _EVALUATED),
    Metric("eval/<task>/pass@<k>", "share", "unbiased estimate of the probability that at least one of k completions is right", _SEVERAL),
    Metric("eval/<task>/maj@<k>", "share", "unbiased estimate of the probability that the most frequent of k answers is right", _SEVERAL),
    Metric("eval/<task>/pass@<k>/<bound>", "share", "95 % interval", _SEVERAL),
    Metric("eval/<task>/maj@<k>/<bound>", "share", "95 % interval", _SEVERAL),
    Metric("eval/<task>/reward", "reward", "mean reward", _EVALUATED),
    Metric("eval/<task>/length", "tokens", "mean length of the completions", _EVALUATED),
    Metric("eval/<task>/truncated", "share", "completions that were cut off at the length limit", _EVALUATED),
    Metric("eval/<task>/conversation/<name>", "", "the same as `conversation/<name>`, over all completions", "if there are any"),
    Metric("eval/<task>/failed", "count", "completions without a verdict, which count neither for nor against", "if there are any"),
)


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], Metric], ...]:
    """Return pattern and metric of each name. Names without a placeholder come before those with one."""
    ordered = sorted(METRICS, key=lambda metric: ("<" in metric.name, -metric.name.count("/")))
    return tuple((re.compile(re.sub(r"<[^>]+>", _part, re.escape(metric.name)) + r"\Z"), metric) for metric in ordered)


def _part(found: re.Match[str]) -> str:
    return {"<bound>": "(low|high)", "<k>": r"\d+", "<percentile>": r"p\d+", "<name>": ".+"}.get(found[0], "[^/]+")


def metric_of(name: str) -> Metric | None:
    """Return the description of a figure of ``metrics.jsonl``; None if it belongs to a plugin that rlcore does not know."""
    return next((metric for pattern, metric in _patterns() if pattern.match(name)), None)
