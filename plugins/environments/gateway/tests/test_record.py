"""The environment's record of the policy's answers against what was sampled."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_gateway.record import difference

ANSWERS = st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=4)


@given(ANSWERS, ANSWERS)
def test_only_the_same_answers_in_any_order_are_equal(recorded: list[list[int]], sampled: list[list[int]]) -> None:
    assert (difference(recorded, sampled) == "") == (Counter(map(tuple, recorded)) == Counter(map(tuple, sampled)))


@pytest.mark.parametrize(
    ("recorded", "sampled", "said"),
    [
        ([[1, 2], [7, 8, 9]], [[7, 8, 5], [1, 2]], "at token 3 of answer 2 it has 9, and the policy sampled 5"),
        ([[1, 2]], [[1, 2, 3]], "at token 3 of answer 1 it has the end of the answer, and the policy sampled 3"),
        ([[1]], [[1], [2, 3]], "it lacks 1 of 2 answers that the policy gave, such as that of 2 tokens"),
        ([[1], [2]], [[1]], "it has 2 answers and the policy gave 1; one of 1 tokens was never sampled"),
    ],
)
def test_the_difference_is_named(recorded: list[list[int]], sampled: list[list[int]], said: str) -> None:
    assert difference(recorded, sampled) == said
