"""The figures of an update: those of its optimizer steps, and those of its batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlcore.contracts.batches import TrainBatch
from rlcore.learning.objective import WEIGHT, WEIGHT_SQUARED

__all__ = ["described_batch", "mean_by_rollout", "over_steps", "with_sample_size"]

_COUNTS = ("skipped_rollouts", "skipped_steps")
"""Metrics that are summed over the optimizer steps of an update; all others are averaged."""


def with_sample_size(metrics: Mapping[str, float]) -> Mapping[str, float]:
    """Replace the mean and the mean square of the token weights by the effective sample size.

    Both add up over micro-batches and ranks; the effective sample size does not. It is (sum w)^2 / (n sum w^2), Kish's formula, as a share
    of n."""
    rest = {name: value for name, value in metrics.items() if name not in (WEIGHT, WEIGHT_SQUARED)}
    if metrics.get(WEIGHT_SQUARED, 0.0) > 0.0:
        rest["effective_sample_size"] = metrics[WEIGHT] ** 2 / metrics[WEIGHT_SQUARED]
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
    return {name: float(np.sum(of_steps) if name in _COUNTS else np.mean(of_steps)) for name, of_steps in values.items()}


def described_batch(batch: TrainBatch) -> dict[str, float]:
    trained = np.repeat(batch.in_loss, batch.lengths)
    return {
        "tokens": float(trained.sum()),
        "rollouts_in_loss": float(batch.in_loss.sum()),
        "advantage_abs_mean": float(np.abs(batch.advantages[trained]).mean()) if trained.any() else 0.0,
    }
