from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.api import Aggregation, Normalisers, RunError
from rlcore.learning.aggregation import count, token_weights
from rlcore.testing.algorithms.fake_algorithms import AGGREGATIONS

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
    weights = token_weights(LENGTHS, IN_LOSS, count(LENGTHS, IN_LOSS, 8), AGGREGATIONS[variation])
    assert weights.dtype == np.float32
    assert weights == pytest.approx(expected, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=10), st.sampled_from(list(AGGREGATIONS)))
def test_shares_add_up_to_the_scalar_definition(rows: list[tuple[int, bool]], variation: str) -> None:
    lengths, in_loss = (np.array(column) for column in zip(*rows, strict=True))
    per_token = np.random.default_rng(0).normal(size=int(lengths.sum()))
    weights = token_weights(lengths, in_loss, count(lengths, in_loss, 10), AGGREGATIONS[variation])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rollouts = [per_token[offsets[row] : offsets[row + 1]].tolist() for row in range(len(rows)) if in_loss[row] and lengths[row]]
    tokens = sum(len(values) for values in rollouts)
    expected = 0.0
    if rollouts:
        expected = {
            "token_level": sum(sum(values) for values in rollouts) / tokens,
            "sample_level": sum(sum(values) / len(values) for values in rollouts) / len(rollouts),
            "constant_length": sum(sum(values) / 10 for values in rollouts) / len(rollouts),
        }[variation]
    assert float((weights * per_token).sum()) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("variation", "expected"), [("token_level", 1.0), ("sample_level", 1.0), ("constant_length", 1 / 8)])
def test_a_single_token_carries_the_whole_step(variation: str, expected: float) -> None:
    one, in_loss = np.array([1, 0]), np.array([True, True])
    assert token_weights(one, in_loss, count(one, in_loss, 8), AGGREGATIONS[variation]).tolist() == [expected]


def test_nothing_in_the_loss_is_all_zeros() -> None:
    nothing = np.zeros(4, np.bool_)
    for variation in AGGREGATIONS:
        assert not token_weights(LENGTHS, nothing, count(LENGTHS, nothing, 8), AGGREGATIONS[variation]).any()


class Own(Aggregation):
    """Returns what it was made with, and keeps what it was given."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def weights(self, lengths: np.ndarray, in_loss: np.ndarray, group: np.ndarray, normalisers: Normalisers) -> np.ndarray:
        self.given = lengths.tolist(), in_loss.tolist(), group.tolist(), normalisers
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: np.ndarray = self.answer
        return answer


def test_an_aggregation_of_ones_own_sees_the_step_and_has_no_weight_outside_the_loss() -> None:
    own, counts = Own(np.arange(6.0) + 1), count(LENGTHS, IN_LOSS, 8)
    assert token_weights(LENGTHS, IN_LOSS, counts, own, np.array([4, 4, 5, 5])).tolist() == [1, 2, 3, 0, 5, 6]
    assert own.given == (LENGTHS.tolist(), IN_LOSS.tolist(), [4, 4, 5, 5], counts)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (np.ones(4), r"aggregation Own returned weights of shape \[4\]; it must return one per token, \[6\]"),
        (np.full(6, np.nan), "aggregation Own returned weights that are not finite"),
        (np.full(6, 1e39), "aggregation Own returned weights that are not finite in float32"),
        (KeyError("x"), "aggregation Own failed while weighing tokens: KeyError: 'x'"),
    ],
)
def test_weights_that_cannot_be_are_blamed_on_the_aggregation(answer: Any, says: str) -> None:
    with pytest.raises(RunError, match=says):
        token_weights(LENGTHS, IN_LOSS, count(LENGTHS, IN_LOSS, 8), Own(answer))
