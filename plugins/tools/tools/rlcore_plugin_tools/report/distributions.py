"""The spread of lengths and rewards at each step: percentiles, and counts in equal bins that all steps share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

__all__ = ["evenly", "percentile", "plain_number", "spread"]

_PERCENTILES = (10, 50, 90)
_BINS = 24
_FEW = 8
"""At most so many different values are levels, like 0 and 1, instead of a scale: they get wider bins."""


def spread(values: Mapping[int, Sequence[float]]) -> dict[str, Any] | None:
    """Return ``steps``; ``p10``, ``p50``, ``p90``, ``mean`` and ``counts`` (a list of bins) of the values of each step; ``low`` and
    ``high`` of all bins. None if there is no value."""
    there = {step: sorted(of_step) for step, of_step in sorted(values.items()) if of_step}
    if not there:
        return None
    low, high = min(of_step[0] for of_step in there.values()), max(of_step[-1] for of_step in there.values())
    low, width, bins = _bins(low, high, {value for of_step in there.values() for value in of_step})
    percentiles = {f"p{share}": [percentile(of_step, share) for of_step in there.values()] for share in _PERCENTILES}
    return {
        "steps": list(there),
        **percentiles,
        "mean": [plain_number(fmean(of_step)) for of_step in there.values()],
        "low": low,
        "high": low + bins * width,
        "counts": [_counts(of_step, low, width, bins) for of_step in there.values()],
    }


def _bins(low: float, high: float, values: set[float]) -> tuple[float, float, int]:
    """Return the start of the first bin, the width of each bin, and the number of bins. Whole numbers lie in the middle of their bins."""
    if all(value == int(value) for value in values) and high - low >= _FEW:
        width = math.ceil((high - low + 1) / _BINS)
        return low - 0.5, float(width), math.ceil((high - low + 1) / width)
    bins = _FEW if len(values) <= _FEW else _BINS
    return (low, (high - low) / bins, bins) if high > low else (low - 0.5, 1.0, 1)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile of ordered values, linear between neighbours."""
    place = (len(ordered) - 1) * share / 100
    below, part = int(place), place % 1
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * part


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most ``most`` of the items, spread over all of them; the first and the last are among them."""
    if len(items) <= most:
        return list(items)
    if most <= 1:
        return list(items[-1:]) * max(0, most)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def plain_number(value: Any) -> float | None:
    """Return a finite number, rounded to six significant digits; None for any other value in a file."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.6g}")


def _counts(values: Iterable[float], low: float, width: float, bins: int) -> list[int]:
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return counts
