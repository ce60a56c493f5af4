from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.api import Normalisers
from rlcore.learning import Variation, count, token_weights

LENGTHS = np.array([3, 0, 1, 2])
IN_LOSS = np.array([True, True, False, True])


def test_normalisers_count_what_trains() -> None:
    assert count(LENGTHS, IN_LOSS, 8) == Normalisers(tokens=5, rollouts=2, length=8)


@pytest.mark.parametrize(
    ("variation", "expected"),
    [
        ("token_level", [1 / 5, 1 / 5, 1 / 5, 0, 1 / 5, 1 / 5]),
        ("sample_level", [1 / 6, 1 / 6, 1 / 6, 0, 1 / 4, 1 / 4]),
        ("constant_length", [1 / 16, 1 / 16, 1 / 16, 0, 1 / 16, 1 / 16]),
    ],
)
def test_weights_by_hand(variation: str, expected: list[float]) -> None:
    weights = token_weights(LENGTHS, IN_LOSS, count(LENGTHS, IN_LOSS, 8), variation)
    assert weights.dtype == np.float32
    assert weights == pytest.approx(expected, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=10), st.sampled_from(list(Variation)))
def test_shares_add_up_to_the_scalar_definition(rows: list[tuple[int, bool]], variation: Variation) -> None:
    lengths, in_loss = (np.array(column) for column in zip(*rows, strict=True))
    per_token = np.random.default_rng(0).normal(size=int(lengths.sum()))
    weights = token_weights(lengths, in_loss, count(lengths, in_loss, 10), variation)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rollouts = [per_token[offsets[row] : offsets[row + 1]].tolist() for row in range(len(rows)) if in_loss[row] and lengths[row]]
    tokens = sum(len(values) for values in rollouts)
    expected = 0.0
    if rollouts:
        expected = {
            Variation.TOKEN_LEVEL: sum(sum(values) for values in rollouts) / tokens,
            Variation.SAMPLE_LEVEL: sum(sum(values) / len(values) for values in rollouts) / len(rollouts),
            Variation.CONSTANT_LENGTH: sum(sum(values) / 10 for values in rollouts) / len(rollouts),
        }[variation]
    assert float((weights * per_token).sum()) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("variation", "expected"), [("token_level", 1.0), ("sample_level", 1.0), ("constant_length", 1 / 8)])
def test_a_single_token_carries_the_whole_step(variation: str, expected: float) -> None:
    one, in_loss = np.array([1, 0]), np.array([True, True])
    assert token_weights(one, in_loss, count(one, in_loss, 8), variation).tolist() == [expected]


def test_nothing_in_the_loss_is_all_zeros() -> None:
    nothing = np.zeros(4, np.bool_)
    for variation in Variation:
        assert not token_weights(LENGTHS, nothing, count(LENGTHS, nothing, 8), variation).any()


def test_an_unknown_variation_is_refused() -> None:
    with pytest.raises(ValueError, match="sequence_level"):
        token_weights(LENGTHS, IN_LOSS, count(LENGTHS, IN_LOSS, 8), "sequence_level")
