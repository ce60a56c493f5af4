"""The figures of an update: those of its optimizer steps, and those of its batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlcore.contracts.batches import TrainBatch
from rlcore.learning.objective import WEIGHT, WEIGHT_SQUARED

__all__ = ["described_batch", "figure_of", "mean_by_rollout", "over_steps", "with_sample_size"]

_COUNTS = ("skipped_rollouts", "skipped_steps")
"""Metrics that are summed over the optimizer steps of an update; all others are averaged."""


def figure_of(metric: str) -> tuple[str, str]:
    """Return the name of the source of a metric ``source/NAME/<figure>`` and the figure; "" and the metric for any other."""
    _, name, figure = metric.split("/", 2) if metric.startswith("source/") else ("", "", metric)
    return name, figure


def with_sample_size(metrics: Mapping[str, float]) -> Mapping[str, float]:
    """Replace the mean and the mean square of the token weights by the effective sample size.

    Both add up over micro-batches and ranks; the effective sample size does not. It is (sum w)^2 / (n sum w^2), Kish's formula, as a share
    of n."""
    rest = {name: value for name, value in metrics.items() if figure_of(name)[1] not in (WEIGHT, WEIGHT_SQUARED)}
    for name, square in metrics.items():
        if figure_of(name)[1] == WEIGHT_SQUARED and square > 0.0:
            prefix = name.removesuffix(WEIGHT_SQUARED)
            rest[f"{prefix}effective_sample_size"] = metrics[prefix + WEIGHT] ** 2 / square
    return rest


def mean_by_rollout(batch: TrainBatch) -> np.ndarray:
    """Return float32: the mean advantage over the tokens of each rollout with its branches, 0 for a rollout without tokens."""
    places = [(group, rollout.index) for group, rollout in zip(batch.group.tolist(), batch.rollouts, strict=True)]
    number = {place: count for count, place in enumerate(sorted(set(places)))}
    owner = np.repeat([number[place] for place in places], batch.lengths).astype(np.int64)
    sums, lengths = (np.bincount(owner, weights, minlength=len(number)) for weights in (batch.advantages, None))
    means: np.ndarray = (sums / np.maximum(lengths, 1)).astype(np.float32)
    return means


def over_steps(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for record in metrics for name in record)
    values = {name: [record[name] for record in metrics if name in record] for name in names}
    return {name: float(np.sum(of_steps) if figure_of(name)[1] in _COUNTS else np.mean(of_steps)) for name, of_steps in values.items()}


def described_batch(batch: TrainBatch, sources: Sequence[str] = ()) -> dict[str, float]:
    """Return figures of the batch, and the same of each of several sources as ``source/NAME/<figure>``."""
    parts = [(f"source/{name}/", batch.take(np.flatnonzero(batch.source == number))) for number, name in enumerate(sources)]
    return {prefix + name: value for prefix, part in [("", batch), *parts] for name, value in _described(part).items()}


def _described(batch: TrainBatch) -> dict[str, float]:
    trained = np.repeat(batch.in_loss, batch.lengths)
    return {
        "tokens": float(trained.sum()),
        "rollouts_in_loss": float(batch.in_loss.sum()),
        "advantage_abs_mean": float(np.abs(batch.advantages[trained]).mean()) if trained.any() else 0.0,
    }
