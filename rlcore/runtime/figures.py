"""A batch, and what it says of itself: the metrics of a step, and the rows of the rollout log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from rlcore.contracts.types import Finish, Group, Kind, Rollout, Score

__all__ = ["Batch", "batch_figures", "probe_sequence", "rollout_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The groups of one update in canonical order; ``masked`` numbers those that were filtered and train nothing; ``filtering``: figures
    of what the filter took out for it, empty without a filter."""

    groups: tuple[Group, ...]
    masked: frozenset[int]
    version: int
    filtering: Mapping[str, float] = field(default_factory=dict)


def batch_figures(batch: Batch) -> dict[str, float]:
    """Means over the sampled rollouts of the batch: reward and accuracy over those in the statistics, the rest over all."""
    pairs = list(_sampled(batch))
    counted = [score for _, score in pairs if score.in_statistics]
    lengths = np.array([rollout.length for rollout, _ in pairs] or [0])
    ages = [batch.version - rollout.version for rollout, _ in pairs if rollout.version is not None]
    turns = [float(sum(message.policy for message in rollout.turns) or 1) for rollout, _ in pairs]
    figures = {
        "reward/mean": _mean([score.value for score in counted]),
        "reward/accuracy": _mean([score.accuracy for score in counted if score.accuracy is not None]),
        "reward/format": _mean([float(score.format_ok) for score in counted if score.format_ok is not None]),
        "response_length/mean": float(lengths.mean()),
        "response_length/max": float(lengths.max()),
        "response_tokens": float(lengths.sum()),
        "temperature": fmean(rollout.temperature for rollout, _ in pairs) if pairs else float("nan"),
        "turns/mean": _mean(turns if max(turns, default=1) > 1 else []),
        "truncated": _mean([float(rollout.finish is Finish.LENGTH) for rollout, _ in pairs]),
        "staleness/mean": _mean([float(age) for age in ages]),
        "staleness/max": float(max(ages, default=0)),
        "groups": float(len(batch.groups)),
        "groups/masked": float(len(batch.masked)),
        **batch.filtering,
    }
    return {name: value for name, value in figures.items() if not np.isnan(value)}


def rollout_rows(batch: Batch) -> Iterator[dict[str, Any]]:
    """One row a rollout, readable on its own."""
    for group in batch.groups:
        for rollout, score in zip(group.rollouts, group.scores, strict=True):
            yield {
                "prompt_id": group.prompt_id,
                "episode": group.episode,
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
                "outcome": score.outcome.value,
                "reason": score.reason,
                **({"turns": list(map(asdict, rollout.turns)), "turn_rewards": list(score.turn_rewards)} if rollout.turns else {}),
            }


def probe_sequence(batch: Batch, tokens: int = 64) -> np.ndarray | None:
    """int32[T]: the end of the batch's first sequence, response included, so that the probe reads weights that have moved."""
    for rollout, _ in _sampled(batch):
        segment = rollout.segments[-1]
        sequence = np.concatenate([segment.context_ids, segment.token_ids])[-tokens:]
        if len(segment.token_ids) and len(sequence) > 1:
            return sequence
    return None


def _sampled(batch: Batch) -> Iterator[tuple[Rollout, Score]]:
    for group in batch.groups:
        for rollout, score in zip(group.rollouts, group.scores, strict=True):
            if rollout.kind is Kind.SAMPLED:
                yield rollout, score


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
