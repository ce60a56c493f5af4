"""Means with their 95 % intervals by Student's t: of independent values, of pairs, and of the difference of two groups (Welch)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Interval", "difference_of_means", "mean_interval", "t_quantile"]

_CONFIDENCE = 0.95
_MOST_TERMS = 10_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the bounds of the true mean with 95 % confidence; None for a single value, which gives no bounds. ``count``: the number
    of values."""

    mean: float
    low: float | None
    high: float | None
    count: int

    def overlaps(self, other: Interval) -> bool | None:
        """Return whether the two have a value in common; None if one has no bounds."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return None
        return self.low <= other.high and other.low <= self.high

    def as_json(self) -> dict[str, float | int | None]:
        """Return plain data."""
        return {"mean": self.mean, "low": self.low, "high": self.high, "count": self.count}


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the interval of independent values, at least one: mean ± t(n - 1) s / sqrt(n)."""
    mean, count = math.fsum(values) / len(values), len(values)
    if count == 1:
        return Interval(mean, None, None, 1)
    half = t_quantile(count - 1) * math.sqrt(_variance(values, mean) / count)
    return Interval(mean, mean - half, mean + half, count)


def difference_of_means(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Return the mean of ``second`` minus the mean of ``first`` with Welch's interval: two independent groups whose spreads may differ.
    There are no bounds if a group is a single value. ``count``: the values of both."""
    means = [math.fsum(values) / len(values) for values in (first, second)]
    difference, count = means[1] - means[0], len(first) + len(second)
    if min(len(first), len(second)) < 2:
        return Interval(difference, None, None, count)
    shares = [_variance(values, mean) / len(values) for values, mean in zip((first, second), means, strict=True)]
    error = sum(shares)
    if not error:
        return Interval(difference, difference, difference, count)
    freedom = error**2 / sum(share**2 / (len(values) - 1) for share, values in zip(shares, (first, second), strict=True))
    half = t_quantile(freedom) * math.sqrt(error)
    return Interval(difference, difference - half, difference + half, count)


def _variance(values: Sequence[float], mean: float) -> float:
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def t_quantile(freedom: float, confidence: float = _CONFIDENCE) -> float:
    """Return the t for which a Student variable with so many degrees of freedom (any positive number) is in [-t, t] with this
    probability."""
    low, high = 0.0, 1.0
    while _outside(high, freedom) > 1 - confidence:
        low, high = high, high * 2
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _outside(middle, freedom) > 1 - confidence else (low, middle)
    return high


def _outside(t: float, freedom: float) -> float:
    """Return P(|T| > t), which is the regularised incomplete beta function I_x(freedom / 2, 1/2) at x = freedom / (freedom + t^2)."""
    x = freedom / (freedom + t * t)
    a, b = freedom / 2, 0.5
    if x < (a + 1) / (a + b + 2):
        return _beta_fraction(x, a, b)
    return 1 - _beta_fraction(t * t / (freedom + t * t), b, a)


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Return I_x(a, b) by its continued fraction (DLMF 8.17.22), for x < (a + 1) / (a + b + 2), where it converges fast."""
    if x <= 0:
        return 0.0
    front = math.exp(a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)) / a
    # Lentz's method keeps the numerators' products as two running ratios, so that nothing overflows.
    above, below, whole = 1.0, 0.0, 1.0
    for numerator in _numerators(x, a, b):
        below = 1 / (1 + numerator * below)
        above = 1 + numerator / above
        whole *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return front / whole


def _numerators(x: float, a: float, b: float) -> Iterator[float]:
    yield -(a + b) * x / (a + 1)
    for m in range(1, _MOST_TERMS):
        yield m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        yield -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
