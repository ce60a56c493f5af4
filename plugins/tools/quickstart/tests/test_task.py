"""The split has no leak, and the same seed gives the same problems."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_quickstart.task import LENGTHS, Problem, make_split


def test_an_example() -> None:
    problem = Problem((8, 3, 1, 6))
    assert problem.row() == {"messages": {"role": "user", "content": "sort 8 3 1 6"}, "gt_answer": "1 3 6 8"}
    assert problem.response == r"\boxed{1 3 6 8}"


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), n_train=st.integers(1, 4000), n_heldout=st.integers(1, 300))
def test_no_order_of_a_held_out_problem_is_trained_on(seed: int, n_train: int, n_heldout: int) -> None:
    split = make_split(seed, n_train, n_heldout)
    held = {problem.members for problem in split.heldout}
    assert not held & {problem.members for problem in split.train}
    assert len(held) == len(split.heldout) == n_heldout
    assert all(len(set(problem.digits)) == len(problem.digits) for problem in (*split.train, *split.heldout))
    assert len(set(split.train)) == len(split.train) == n_train
    for part in (split.train, split.heldout):
        counts = Counter(len(problem.digits) for problem in part)
        assert max(counts[length] for length in LENGTHS) - min(counts[length] for length in LENGTHS) <= 1


def test_the_seed_decides() -> None:
    assert make_split(3, 50, 20) == make_split(3, 50, 20)
    assert make_split(3, 50, 20) != make_split(4, 50, 20)


def test_asking_for_more_problems_than_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="request fewer"):
        make_split(0, 10_000_000, 0)
