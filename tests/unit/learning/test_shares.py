"""Shares of data-parallel ranks: a partition into whole groups, balanced, the same wherever it is made."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import TrainingBackend
from rlcore.learning.shares import StepShares, cut_shares, joined
from rlcore.testing import make_rollout, make_train_batch

Shape = list[tuple[int, list[tuple[int, bool]]]]
"""For each group its context length and, per rollout, its tokens and whether it trains."""

SHAPES = st.lists(
    st.tuples(st.integers(1, 9), st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=5)), min_size=1, max_size=9
)


def make_batch(shape: Shape) -> TrainBatch:
    rows: list[Any] = [(number, context, length, trains) for number, (context, members) in enumerate(shape) for length, trains in members]
    return make_train_batch(
        [make_rollout([1] * context, [2] * length, prompt_id=f"p{number}") for number, context, length, _ in rows],
        [0.0] * len(rows),
        group=[10 - number for number, *_ in rows],
        in_loss=[trains and length > 0 for _, _, length, trains in rows],
    )


def tokens(batch: TrainBatch, rows: np.ndarray) -> int:
    """What a backend counts that says nothing of its own."""
    cost: int = TrainingBackend.cost(Mock(), batch, rows)
    return cost


def weight(batch: TrainBatch, rows: np.ndarray, everything: bool) -> int:
    forwarded = [row for row in rows if batch.lengths[row] and (everything or batch.in_loss[row])]
    return sum(len(batch.rollouts[row].segments[0].context_ids) + int(batch.lengths[row]) for row in forwarded)


@given(SHAPES, st.integers(1, 6), st.booleans())
@settings(deadline=None, max_examples=150)
def test_shares_are_a_partition_into_whole_groups_and_balanced_to_one_group(shape: Shape, size: int, everything: bool) -> None:
    batch = make_batch(shape)
    shares = cut_shares(batch, size, tokens, everything=everything)
    assert len(shares) == size
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(batch)))
    assert all((np.diff(rows) > 0).all() for rows in shares)
    owners = [set(batch.group[rows].tolist()) for rows in shares]
    assert sum(len(owned) for owned in owners) == len(set().union(*owners)) == len(shape)
    loads = [weight(batch, rows, everything) for rows in shares]
    heaviest = max(weight(batch, np.flatnonzero(batch.group == group), everything) for group in set(batch.group.tolist()))
    assert max(loads) - min(loads) <= heaviest


@given(SHAPES, st.integers(1, 6))
@settings(deadline=None, max_examples=50)
def test_the_same_batch_is_cut_the_same_way_whatever_the_groups_are_called(shape: Shape, size: int) -> None:
    batch = make_batch(shape)
    other = make_train_batch(batch.rollouts, [1.0] * len(batch), group=(batch.group + 7).tolist(), in_loss=batch.in_loss.tolist())
    for mine, theirs in zip(cut_shares(batch, size, tokens), cut_shares(other, size, tokens), strict=True):
        assert mine.tolist() == theirs.tolist()


@given(SHAPES, st.integers(1, 6))
@settings(deadline=None, max_examples=50)
def test_what_is_cut_can_be_joined(shape: Shape, size: int) -> None:
    batch = make_batch(shape)
    values = np.arange(int(batch.offsets[-1]), dtype=np.float32)
    from_rows = [
        np.concatenate([np.zeros(0, np.float32), *(values[batch.offsets[row] : batch.offsets[row + 1]] for row in rows)])
        for rows in cut_shares(batch, size, tokens, everything=True)
    ]
    whole = joined(batch, cut_shares(batch, size, tokens, everything=True), from_rows)
    assert whole.dtype == np.float32
    assert np.array_equal(whole, values)


def test_heaviest_first_by_hand() -> None:
    """Groups of 9, 5, 5, 4, 3 tokens on two ranks: 9 + 4 against 5 + 5 + 3."""
    batch = make_batch([(1, [(4, True)]), (1, [(8, True)]), (1, [(4, True)]), (1, [(3, True)]), (1, [(2, True)])])
    assert [rows.tolist() for rows in cut_shares(batch, 2, tokens)] == [[1, 3], [0, 2, 4]]


def test_what_does_not_train_weighs_nothing_in_an_update_and_its_tokens_otherwise() -> None:
    batch = make_batch([(1, [(9, False)]), (1, [(5, True)]), (1, [(4, True)])])
    assert [rows.tolist() for rows in cut_shares(batch, 2, tokens)] == [[1], [0, 2]]
    assert [rows.tolist() for rows in cut_shares(batch, 2, tokens, everything=True)] == [[0], [1, 2]]


def test_an_empty_batch_has_empty_shares() -> None:
    batch = make_batch([(1, [(2, True)])]).take(np.zeros(0, np.int64))
    assert [rows.tolist() for rows in cut_shares(batch, 2, tokens)] == [[], []]
    assert joined(batch, cut_shares(batch, 2, tokens), [np.zeros(0, np.float32)] * 2).shape == (0,)


def test_parts_of_another_batch_are_refused_by_rank() -> None:
    batch = make_batch([(1, [(2, True)]), (1, [(3, True)])])
    shares = cut_shares(batch, 2, tokens)
    with pytest.raises(RunError, match=r"rank 1 sent values of shape \[5\] for its share of 2 tokens"):
        joined(batch, shares, [np.zeros(3, np.float32), np.zeros(5, np.float32)])
    with pytest.raises(RunError, match="arrays of 1 ranks, but 2 ranks share"):
        joined(batch, shares, [np.zeros(3, np.float32)])


def test_a_group_weighs_what_the_backend_says_and_it_is_asked_for_one_group_at_a_time() -> None:
    batch = make_batch([(1, [(9, True), (9, False)]), (1, [(5, True)]), (1, [(4, True)])])
    asked = []

    def cost(given: TrainBatch, rows: np.ndarray) -> int:
        asked.append(rows.tolist())
        return 100 if 3 in rows else 1

    assert [rows.tolist() for rows in cut_shares(batch, 2, cost)] == [[3], [0, 1, 2]]
    assert asked == [[0], [2], [3]]


def test_a_digest_tells_shares_apart() -> None:
    def digest(scored: list[list[int]] | None, *steps: list[list[int]]) -> str:
        arrays = [[np.array(rows, np.int64) for rows in step] for step in (scored or [], *steps)]
        return StepShares(scored=None if scored is None else arrays[0], steps=arrays[1:]).digest

    every = [digest(None, [[0], [1, 2]]), digest(None, [[0, 1], [2]]), digest(None, [[0], [2, 1]]), digest([[0], [1]], [[0], [1, 2]])]
    assert len(set(every)) == len(every)
    assert digest(None, [[0], [1, 2]]) == every[0]
