from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.learning import SoftOverlong
from rlcore.learning.overlong_punishment import soft_overlong

RULE = SoftOverlong(max_new_tokens=100, cache_length=20, correct_score=10.0)


def penalty(length: int, truncated: bool = False, rule: SoftOverlong = RULE) -> float:
    return float(soft_overlong(np.array([length]), np.array([truncated]), rule)[0])


@pytest.mark.parametrize(("length", "expected"), [(0, 0.0), (80, 0.0), (81, -0.5), (90, -5.0), (99, -9.5), (100, -10.0), (140, -10.0)])
def test_by_hand(length: int, expected: float) -> None:
    """Between 80 and 100, ((100 - 20) - L) / 20 x 10."""
    assert penalty(length) == pytest.approx(expected)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 200), st.data())
def test_never_better_to_be_longer(most: int, data: st.DataObject) -> None:
    rule = SoftOverlong(max_new_tokens=most, cache_length=data.draw(st.integers(1, most)), correct_score=data.draw(st.floats(0, 100)))
    values = soft_overlong(np.arange(most + 2), np.zeros(most + 2, np.bool_), rule)
    assert (np.diff(values) <= 0).all()
    assert values[0] <= 0


def test_wrong_at_the_cap_earns_less_than_wrong_below_it() -> None:
    assert penalty(100) < penalty(99) < penalty(85)


def test_truncated_counts_as_the_cap_wherever_it_was_cut() -> None:
    assert penalty(40, truncated=True) == penalty(100, truncated=True) == -10.0


def test_the_penalty_is_one_where_no_score_is_given() -> None:
    assert penalty(100, rule=SoftOverlong(max_new_tokens=100, cache_length=20)) == -1.0


@pytest.mark.parametrize("cache", [0, 101, -1])
def test_a_cache_outside_the_response_is_refused(cache: int) -> None:
    with pytest.raises(ValueError, match="cache_length"):
        SoftOverlong(max_new_tokens=100, cache_length=cache)
