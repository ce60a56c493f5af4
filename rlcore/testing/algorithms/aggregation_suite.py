"""Conformance suite for aggregations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from rlcore.contracts.batches import token_index
from rlcore.contracts.loss_wrappers import Aggregation
from rlcore.learning.aggregation import count, token_weights

__all__ = ["AggregationSuite"]

_LENGTHS = np.array([3, 1, 7, 0, 2, 4, 5, 1])
_GROUP = np.array([0, 0, 0, 1, 1, 2, 2, 2])
_IN_LOSS = np.array([True, True, False, True, True, True, False, True])


class AggregationSuite(ABC):
    """The rules of an aggregation, which gives each token its weight in the loss.

    A subclass defines how to make the aggregation, and sets a flag to False only if the aggregation's paper says so.
    """

    mean: ClassVar[bool] = True
    """A batch that is there twice has the loss of one: it is a mean, not a sum."""
    sums_to_one: ClassVar[bool] = True
    """The weights of all tokens in the loss add up to 1."""
    max_new_tokens: ClassVar[int] = 8

    @abstractmethod
    def make(self) -> Aggregation:
        """Return a fresh aggregation."""

    def weights(self, lengths: np.ndarray = _LENGTHS, in_loss: np.ndarray = _IN_LOSS, group: np.ndarray = _GROUP) -> np.ndarray:
        """Return the weights of a run, float32[N]."""
        return token_weights(lengths, in_loss, count(lengths, in_loss, self.max_new_tokens), self.make(), group)

    def test_shape_and_type(self) -> None:
        """Weights are float64[N], none is negative, and some token in the loss has a weight above 0."""
        values = self.make().weights(_LENGTHS, _IN_LOSS, _GROUP, count(_LENGTHS, _IN_LOSS, self.max_new_tokens))
        assert isinstance(values, np.ndarray), f"weights gave a {type(values).__name__}"
        assert values.shape == (_LENGTHS.sum(),), f"shape {values.shape}; [{_LENGTHS.sum()}] is one a token"
        assert values.dtype == np.float64, f"dtype {values.dtype}; weights are float64 until the batch is assembled"
        trained = self.weights()[np.repeat(_IN_LOSS, _LENGTHS)]
        assert (trained >= 0).all(), f"a weight below 0: {trained.min()}"
        assert trained.any(), "every weight is 0: nothing would train"

    def test_finite_at_the_edges(self) -> None:
        """Weights are finite, and 0 outside the loss, if nothing is in the loss, for one token, and for an empty rollout."""
        edges = {
            "nothing in the loss": ([3, 2], [False, False]),
            "one token": ([1], [True]),
            "an empty rollout": ([0], [True]),
            "an empty rollout beside another": ([0, 2], [True, False]),
        }
        for name, (lengths, trains) in edges.items():
            values = self.weights(np.array(lengths), np.array(trains), np.zeros(len(lengths), np.int64))
            assert np.isfinite(values).all(), f"{name}: {values}"
            assert not values[~np.repeat(trains, lengths)].any(), f"{name}: a weight outside the loss"

    def test_deterministic(self) -> None:
        """The same lengths give the same bits, whatever the aggregation saw before."""
        aggregation, counts = self.make(), count(_LENGTHS, _IN_LOSS, self.max_new_tokens)
        first = token_weights(_LENGTHS, _IN_LOSS, counts, aggregation, _GROUP)
        token_weights(np.array([9]), np.array([True]), count(np.array([9]), np.array([True]), 16), aggregation, np.array([0]))
        assert np.array_equal(token_weights(_LENGTHS, _IN_LOSS, counts, aggregation, _GROUP), first), "it depends on what it saw before"
        assert np.array_equal(self.weights(), first), "two aggregations differ"

    def test_inputs_are_not_changed(self) -> None:
        """Lengths, ``in_loss`` and groups are unchanged afterwards: they are shared."""
        lengths, in_loss, group = _LENGTHS.copy(), _IN_LOSS.copy(), _GROUP.copy()
        self.make().weights(lengths, in_loss, group, count(lengths, in_loss, self.max_new_tokens))
        for name, now, before in (("lengths", lengths, _LENGTHS), ("in_loss", in_loss, _IN_LOSS), ("group", group, _GROUP)):
            assert np.array_equal(now, before), f"weights changed {name}"

    def test_follows_a_permutation(self) -> None:
        """Each token keeps its weight if rollouts are permuted and groups renumbered."""
        order = np.array([5, 0, 3, 7, 1, 4, 6, 2])
        tokens = token_index(np.concatenate([[0], np.cumsum(_LENGTHS)]), order)
        moved = self.weights(_LENGTHS[order], _IN_LOSS[order], 7 - _GROUP[order])
        assert np.allclose(moved, self.weights()[tokens], rtol=1e-6), "a permutation of the rollouts changed weights"

    def test_what_is_outside_the_loss_has_no_influence(self) -> None:
        """The length of a rollout outside the loss changes no weight of another rollout."""
        longer = np.where(_IN_LOSS, _LENGTHS, _LENGTHS + 3)
        trained = self.weights(longer)[np.repeat(_IN_LOSS, longer)]
        assert np.allclose(trained, self.weights()[np.repeat(_IN_LOSS, _LENGTHS)]), "the length of a rollout outside the loss matters"

    def test_the_weights_sum_to_one(self) -> None:
        """The weights sum to 1. Not checked with ``sums_to_one = False``."""
        total = float(self.weights().sum(dtype=np.float64))
        assert not self.sums_to_one or abs(total - 1.0) < 1e-6, f"the weights sum to {total}; if that is meant, set sums_to_one = False"

    def test_a_batch_twice_is_the_batch(self) -> None:
        """A batch that is repeated has the loss of the batch, so the gradient does not grow with the batch. Not checked with ``mean =
        False``."""
        twice = self.weights(np.tile(_LENGTHS, 2), np.tile(_IN_LOSS, 2), np.concatenate([_GROUP, _GROUP + 3]))
        same = np.allclose(twice.reshape(2, -1).sum(0), self.weights(), rtol=1e-6)
        assert not self.mean or same, "the batch twice has another loss than the batch; if that is meant, set mean = False"
