"""Lengths: the mean asked for is the mean after the cut, and the longest of a batch is what drawing says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.testing import LengthKind, Lengths


def lognormal(mean: float = 64.0, sigma: float = 1.0, cut: float = 8.0) -> Lengths:
    return Lengths(kind=LengthKind.LOGNORMAL, mean=mean, sigma=sigma, cut=cut)


def grid_of_normals() -> np.ndarray:
    """The middle of each of 400 000 equal slices of [-12, 12]; with the normal's density as weights, a rule for any expectation."""
    return (np.arange(400_000) + 0.5) / 400_000 * 24 - 12


@pytest.mark.parametrize(("sigma", "cut"), [(1.0, 8.0), (0.3, 8.0), (2.0, 8.0), (1.0, 1.5)])
def test_the_mean_is_that_of_what_is_left_after_the_cut(sigma: float, cut: float) -> None:
    class Quantiles:
        """A generator whose normals are the grid's points."""

        def standard_normal(self, count: int) -> np.ndarray:
            return grid_of_normals()

    drawn = lognormal(64.0, sigma, cut).draw(Quantiles(), 400_000)  # type: ignore[arg-type]
    weights = np.exp(-(grid_of_normals() ** 2) / 2) / math.sqrt(2 * math.pi) * 24 / 400_000
    assert (drawn * weights).sum() == pytest.approx(64.0, rel=1e-6)
    assert drawn.max() == pytest.approx(64.0 * cut)


@pytest.mark.parametrize("count", [1, 16, 256])
def test_the_longest_of_a_batch_is_what_drawing_says(count: int) -> None:
    lengths = lognormal()
    batches = lengths.draw(np.random.default_rng(0), 200_000 // count * count).reshape(-1, count)
    longest = batches.max(axis=1)
    error = longest.std() / math.sqrt(len(longest))
    assert abs(lengths.mean_longest_of(count) - longest.mean()) < 4 * error


def test_constant_lengths_are_constant() -> None:
    lengths = Lengths(kind=LengthKind.CONSTANT, mean=64.0)
    assert lengths.draw(np.random.default_rng(0), 3).tolist() == [64.0] * 3
    assert lengths.mean_longest_of(16) == 64.0


@given(st.floats(1.0, 200.0), st.floats(0.1, 2.0), st.floats(1.1, 20.0), st.integers(0, 1000))
@settings(deadline=None)
def test_a_response_has_at_least_one_token_and_none_beyond_the_cut(mean: float, sigma: float, cut: float, seed: int) -> None:
    lengths = lognormal(mean, sigma, cut)
    assert 1 <= lengths.tokens(np.random.default_rng(seed)) <= max(1, round(lengths.cut * lengths.mean))


@pytest.mark.parametrize("wrong", [{"mean": 0.0}, {"sigma": 0.0}, {"cut": 1.0}, {"mean": math.nan}])
def test_what_is_no_distribution_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"mean > 0, sigma > 0 and cut > 1"):
        Lengths(kind=LengthKind.LOGNORMAL, **wrong)
