"""Lines of programs: whatever they write is the end of an episode, or one sentence."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_gateway.worker_lines import BadLineError, EpisodeEnd, parsed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["episode", "outcome", "reward", "turn_rewards", "calls", "extra", "reason", "other"])


@given(st.binary(max_size=40) | st.dictionaries(FIELDS, VALUES).map(lambda said: json.dumps(said).encode()))
def test_a_line_is_an_end_with_finite_numbers_or_an_error_of_its_own(line: bytes) -> None:
    try:
        episode, end = parsed(line)
    except BadLineError:
        return
    assert isinstance(episode, str)
    assert isinstance(end, EpisodeEnd)
    assert end.outcome in ("ok", "timeout", "crashed", "environment")
    assert end.reward is None or math.isfinite(end.reward)
    assert all(map(math.isfinite, end.turn_rewards.values()))


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"episode": "a", "reward": 1' + b"0" * 400 + b"}", b"\xff"])
def test_lines_that_break_a_parser_are_one_sentence(line: bytes) -> None:
    with pytest.raises(BadLineError):
        parsed(line)
