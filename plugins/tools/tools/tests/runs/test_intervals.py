"""Intervals against mpmath, tables and figures by hand."""

from __future__ import annotations

import math

import mpmath
import pytest
from rlcore_plugin_tools.runs.intervals import Interval, difference_of_means, mean_interval, t_quantile

TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 30: 2.042, 120: 1.980}
"""Two-sided 95 % points of Student's t, as every textbook prints them."""


@pytest.mark.parametrize(("freedom", "point"), TABLE.items())
def test_the_points_of_the_tables(freedom: int, point: float) -> None:
    assert round(t_quantile(freedom), 3) == point


@pytest.mark.parametrize("freedom", [1, 1.5, 2, 3.7, 10, 57.3, 1000, 20_000])
def test_the_points_against_mpmath(freedom: float) -> None:
    def outside(t: mpmath.mpf) -> mpmath.mpf:
        return mpmath.betainc(mpmath.mpf(freedom) / 2, 0.5, 0, freedom / (freedom + t * t), regularized=True) - mpmath.mpf("0.05")

    assert t_quantile(freedom) == pytest.approx(float(mpmath.findroot(outside, t_quantile(freedom))), rel=1e-8)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.99])
def test_other_confidences_of_one_degree_have_a_closed_form(confidence: float) -> None:
    assert t_quantile(1, confidence) == pytest.approx(math.tan(math.pi * confidence / 2), rel=1e-9)


def test_a_mean_by_hand() -> None:
    # 1, 2, 3: s = 1, half = 4.302653 / sqrt(3)
    found = mean_interval([1.0, 2.0, 3.0])
    assert (found.mean, found.count) == (2.0, 3)
    assert found.low == pytest.approx(2 - 4.302652729749 / math.sqrt(3))
    assert found.high == pytest.approx(2 + 4.302652729749 / math.sqrt(3))


def test_one_value_has_no_bounds() -> None:
    assert mean_interval([0.5]) == Interval(0.5, None, None, 1)
    assert difference_of_means([1.0], [2.0, 3.0]) == Interval(1.5, None, None, 3)


def test_welch_by_hand() -> None:
    """Variances 1 and 4, of 3 values each: error² = 5/3, freedom = (5/3)² / ((1/3)²/2 + (4/3)²/2) = 50/17."""
    found = difference_of_means([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    half = t_quantile(50 / 17) * math.sqrt(5 / 3)
    assert found.mean == pytest.approx(2.0)
    assert (found.low, found.high) == (pytest.approx(2 - half), pytest.approx(2 + half))
    assert half == pytest.approx(4.157, abs=5e-3)


def test_groups_without_spread() -> None:
    assert difference_of_means([1.0, 1.0], [3.0, 3.0]) == Interval(2.0, 2.0, 2.0, 4)


@pytest.mark.parametrize(
    ("other", "common"), [((0.5, 0.9), True), ((0.4, 0.45), True), ((0.41, 0.9), False), ((None, None), None)], ids=str
)
def test_overlap(other: tuple[float | None, float | None], common: bool | None) -> None:
    low, high = (0.2, 0.4) if common is False else (0.2, 0.5)
    assert Interval(0.3, low, high, 10).overlaps(Interval(0.5, *other, 10)) is common
    if common is not None:
        assert Interval(0.5, *other, 10).overlaps(Interval(0.3, low, high, 10)) is common
