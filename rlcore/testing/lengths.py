"""The distribution of response lengths that the simulator of runs draws from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

import numpy as np

__all__ = ["LengthKind", "Lengths"]

POINTS = 20_001
"""Of the rule that integrates the longest of a batch; the curve is smooth but for the step at the cut, which is the interval's end."""


class LengthKind(StrEnum):
    """The shape of the distribution."""

    CONSTANT = "constant"
    LOGNORMAL = "lognormal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths in tokens, ``mean`` on average. ``LOGNORMAL``: exp of a normal with standard deviation ``sigma``; what is longer than
    ``cut * mean`` ends there, as a token limit ends a response, and ``mean`` is the mean of what is left after that.

    Raises ValueError where the mean or sigma is not positive, or the cut is not above 1 (no distribution has its mean at its end).

    >>> Lengths(kind=LengthKind.LOGNORMAL, mean=64, sigma=1.0, cut=8).draw(np.random.default_rng(0), 3).round(1)
    array([44.8, 34.6, 75. ])
    """

    kind: LengthKind = LengthKind.CONSTANT
    mean: float = 64.0
    sigma: float = 1.0
    cut: float = 8.0
    _mu: float = field(init=False, repr=False, compare=False, default=0.0)

    def __post_init__(self) -> None:
        if not (self.mean > 0 and self.sigma > 0 and self.cut > 1):
            raise ValueError(f"lengths need mean > 0, sigma > 0 and cut > 1, got mean {self.mean}, sigma {self.sigma}, cut {self.cut}")
        if self.kind is LengthKind.LOGNORMAL:
            object.__setattr__(self, "_mu", _solve_mu(self.sigma, self.cut))

    def draw(self, generator: np.random.Generator, count: int = 1) -> np.ndarray:
        """Return float64[count]: one number of the generator for each length, none if lengths are constant."""
        if self.kind is LengthKind.CONSTANT:
            return np.full(count, float(self.mean))
        return np.minimum(np.exp(self._mu + self.sigma * generator.standard_normal(count)), self.cut) * self.mean

    def tokens(self, generator: np.random.Generator) -> int:
        """Return one length as a whole number of tokens, at least 1."""
        return max(1, round(float(self.draw(generator)[0])))

    def mean_longest_of(self, count: int) -> float:
        """Return the expected length of the longest of ``count`` draws, for which a batch that starts together waits."""
        if self.kind is LengthKind.CONSTANT:
            return float(self.mean)
        # E[max] is the integral of P(max > x); P(X <= x) is the normal's up to the cut, and 1 from there on.
        lengths = np.linspace(0.0, self.cut, POINTS)
        below = np.array([_normal_cdf((math.log(x) - self._mu) / self.sigma) if x > 0 else 0.0 for x in lengths])
        above = 1.0 - below**count
        return float((above[1:] + above[:-1]).sum() / 2 * (lengths[1] - lengths[0])) * self.mean


@lru_cache(maxsize=64)
def _solve_mu(sigma: float, cut: float) -> float:
    """Return the ``mu`` with which a lognormal that ends at ``cut`` has mean 1, by bisection: the mean grows with mu, from 0 to ``cut``."""
    low, high = -sigma * sigma / 2, math.log(cut) + 10 * sigma
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _mean_after_cut(middle, sigma, cut) < 1.0 else (low, middle)
    return (low + high) / 2


def _mean_after_cut(mu: float, sigma: float, cut: float) -> float:
    """Return E[min(X, cut)] of a lognormal X: its partial expectation below the cut, plus the cut times the probability above it."""
    place = (math.log(cut) - mu) / sigma
    return math.exp(mu + sigma * sigma / 2) * _normal_cdf(place - sigma) + cut * _normal_cdf(-place)


def _normal_cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2.0)) / 2
