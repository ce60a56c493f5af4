"""The figures of a step and the rows of the rollout log, computed from a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from rlcore.contracts.types import FinishReason, Group, Rollout, RolloutKind, Score
from rlcore.data import Prompts, prompt_at
from rlcore.roles.rollout_chat import chat_of, extra_figures

__all__ = ["Batch", "batch_figures", "logged_groups", "probe_sequence", "rollout_rows", "with_prompts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The groups of one update in canonical order.

    ``masked`` holds the indices of groups that were filtered and do not train. ``filtering`` holds the figures of the groups that the
    filter removed for this update; it is empty without a filter."""

    groups: tuple[Group, ...]
    masked: frozenset[int]
    version: int
    filtering: Mapping[str, float] = field(default_factory=dict)

    def sampled(self) -> Iterator[tuple[Rollout, Score]]:
        """Yield the rollouts sampled for training, with their scores, in canonical order."""
        for group in self.groups:
            yield from _sampled(group)


def probe_sequence(batch: Batch, tokens: int = 64) -> np.ndarray | None:
    """Return int32[T]: the end of the batch's first sequence, response included, so that the probe reads weights that have changed."""
    found = (_sequence_of(rollout, tokens) for rollout, _ in batch.sampled())
    return next((sequence for sequence in found if sequence is not None), None)


def _sequence_of(rollout: Rollout, tokens: int) -> np.ndarray | None:
    segment = rollout.segments[-1]
    sequence = np.concatenate([segment.context_ids, segment.token_ids])[-tokens:]
    return sequence if len(segment.token_ids) and len(sequence) > 1 else None


def batch_figures(batch: Batch, sources: Sequence[str] = ()) -> dict[str, float]:
    """Return the figures of the batch's sampled rollouts, by the names in ``contracts.metric_names``.

    Rewards are over the scores in the statistics; the other figures are over all rollouts. ``cut_share`` is the share of the groups' tokens
    in rollouts that oversampling cut. If ranks share the batch, some groups are outlines (``contracts/group_outlines.py``): they have
    texts and log probabilities, but no token ids.

    :param sources: the names of ``[[sources]]``, which then have figures of their own."""
    pairs = list(batch.sampled())
    counted = [score for _, score in pairs if score.in_statistics]
    ages = [batch.version - rollout.version for rollout, _ in pairs if rollout.version is not None]
    turns = [float(sum(message.policy for message in rollout.turns) or 1) for rollout, _ in pairs]
    lengths = [rollout.length for rollout, _ in pairs]
    cut = sum(group.cut_tokens for group in batch.groups)
    figures = {
        **_reward_figures(counted),
        **_group_figures(batch),
        **_length_figures(lengths),
        "temperature": fmean(rollout.temperature for rollout, _ in pairs) if pairs else float("nan"),
        "entropy/sampled": _sampled_entropy([rollout for rollout, _ in pairs]),
        "turns/mean": _mean(turns if max(turns, default=1) > 1 else []),
        "truncated": _mean([float(rollout.finish is FinishReason.LENGTH) for rollout, _ in pairs]),
        "staleness/mean": _mean([float(age) for age in ages]),
        "staleness/max": float(max(ages, default=0)),
        "cut_share": cut / (cut + float(sum(lengths))) if cut else float("nan"),
        **batch.filtering,
        **{f"source/{name}/{figure}": value for number, name in enumerate(sources) for figure, value in _of_source(batch, number).items()},
        **extra_figures(rollout.extra for rollout, _ in pairs),
    }
    return {name: value for name, value in figures.items() if not np.isnan(value)}


def _reward_figures(counted: Sequence[Score]) -> dict[str, float]:
    rewards = [score.value for score in counted]
    parts: dict[str, list[float]] = {}
    for score in counted:
        for name, value in score.parts.items():
            parts.setdefault(name, []).append(value)
    return {
        "reward/mean": _mean(rewards),
        "reward/std": float(np.std(rewards)) if rewards else float("nan"),
        "reward/accuracy": _mean([score.accuracy for score in counted if score.accuracy is not None]),
        "reward/format": _mean([float(score.format_ok) for score in counted if score.format_ok is not None]),
        **{f"reward/part/{name}": _mean(values) for name, values in sorted(parts.items())},
    }


def _group_figures(batch: Batch) -> dict[str, float]:
    """Return the figures of groups. ``zero_spread`` is the share of equal-reward groups among groups with two or more counted rollouts."""
    rewards = [[score.value for _, score in _sampled(group) if score.in_statistics] for group in batch.groups]
    spreads = [float(np.std(values)) for values in rewards if len(values) > 1]
    return {
        "reward/group_std": _mean(spreads),
        "groups": float(len(batch.groups)),
        "groups/masked": float(len(batch.masked)),
        "groups/zero_spread": _mean([float(len(set(values)) == 1) for values in rewards if len(values) > 1]),
        "level/mean": _mean_level(batch.groups),
    }


def _of_source(batch: Batch, number: int) -> dict[str, float]:
    groups = [group for group in batch.groups if group.source_index == number]
    pairs = [pair for group in groups for pair in _sampled(group)]
    counted = [score for _, score in pairs if score.in_statistics]
    return {
        "share": len(groups) / len(batch.groups),
        "reward": _mean([score.value for score in counted]),
        "accuracy": _mean([score.accuracy for score in counted if score.accuracy is not None]),
        "response_length": _mean([float(rollout.length) for rollout, _ in pairs]),
        "level": _mean_level(groups),
    }


def _mean_level(groups: Iterable[Group]) -> float:
    return _mean([float(group.level) for group in groups if group.level is not None])


def _length_figures(lengths: Sequence[int]) -> dict[str, float]:
    values = np.array(lengths or [0])
    low, middle, high = np.percentile(values, (10, 50, 90))
    return {
        "response_length/mean": float(values.mean()),
        "response_length/max": float(values.max()),
        "response_length/p10": float(low),
        "response_length/p50": float(middle),
        "response_length/p90": float(high),
        "response_tokens": float(values.sum()),
    }


def _sampled_entropy(rollouts: Sequence[Rollout]) -> float:
    """Return the mean of -log p over the policy's tokens, under the distribution that each was sampled from."""
    drawn = [segment.logprobs[segment.policy_mask] for rollout in rollouts for segment in rollout.segments]
    logprobs = np.concatenate(drawn) if drawn else np.zeros(0)
    return -float(logprobs.mean()) if len(logprobs) else float("nan")


# --- the rollout log -----------------------------------------------------------------------------------------------------


def logged_groups(batch: Batch, share: float, seed: int) -> list[int]:
    """Return the indices of the groups that the rollout log records: a ``share`` of them, and at least one.

    The choice is keyed by (seed, version, prompt), so that a resumed run chooses the same groups."""
    wanted = max(1, round(share * len(batch.groups)))

    def drawn(place: int) -> bytes:
        return hashlib.blake2b(f"{seed},{batch.version},{batch.groups[place].prompt_id}".encode(), digest_size=16).digest()

    return sorted(sorted(range(len(batch.groups)), key=drawn)[:wanted])


def rollout_rows(
    batch: Batch, advantages: np.ndarray | None = None, *, share: float = 1.0, seed: int = 0, sources: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield one row for each rollout, complete except for its prompt (``with_prompts``).

    :param advantages: float[R], one for each rollout of ``batch.sampled()`` (``Consumer.advantages``).
    :param share: see ``logged_groups``, as for ``seed``.
    :param sources: the names of ``[[sources]]``."""
    known = iter([None] * sum(1 for _ in batch.sampled()) if advantages is None else advantages.tolist())
    logged = set(logged_groups(batch, share, seed))
    for place, group in enumerate(batch.groups):
        named = {"source": sources[group.source_index]} if sources else {}
        for rollout, score in zip(group.rollouts, group.scores, strict=True):
            advantage = next(known) if rollout.kind is RolloutKind.SAMPLED else None
            if place in logged:
                yield {
                    "step": batch.version + 1,
                    **named,
                    **_row(group, rollout, score),
                    "advantage": advantage,
                    "masked": place in batch.masked,
                }


def _row(group: Group, rollout: Rollout, score: Score) -> dict[str, Any]:
    return {
        "prompt_id": group.prompt_id,
        "prompt_index": group.prompt_index,
        "episode": group.episode,
        **({} if group.level is None else {"level": group.level}),
        **({"ordinal": group.ordinal} if group.ordinal else {}),
        "index": rollout.index,
        "kind": rollout.kind.value,
        "temperature": rollout.temperature,
        "text": rollout.text,
        "finish": rollout.finish.value,
        "length": rollout.length,
        "version": rollout.version,
        "reward": score.value,
        "accuracy": score.accuracy,
        "format_ok": score.format_ok,
        "parsed": score.parsed,
        "parts": dict(score.parts),
        "outcome": score.outcome.value,
        "reason": score.reason,
        **chat_of(rollout, score),
    }


def with_prompts(rows: Iterable[Mapping[str, Any]], prompts: Mapping[str, Prompts]) -> Iterator[dict[str, Any]]:
    """Yield the rows with the prompt added, and with the gold answer if the data set has one.

    :param prompts: the prompts of each data set (``Texts.prompts``), by their index."""
    for row in rows:
        name = f"train/{row['source']}" if "source" in row else "train"
        prompt = prompt_at(prompts[name], row["prompt_index"], row.get("level") or 0)
        messages = [message.plain() for message in prompt.messages]
        yield {**row, "prompt": messages, "gold": prompt.columns.get("gt_answer")}


def _sampled(group: Group) -> Iterator[tuple[Rollout, Score]]:
    for rollout, score in zip(group.rollouts, group.scores, strict=True):
        if rollout.kind is RolloutKind.SAMPLED:
            yield rollout, score


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
