"""A curve in one line: as wide as it may be, as high as its values, however many and whatever they are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_plugin_tools.display.sparkline import ASCII_LEVELS, BLOCKS, Curve


def curve(*values: float) -> Curve:
    made = Curve()
    for value in values:
        made.add(value)
    return made


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 4, "▁▃▆█"),
        ([3, 3, 3], 8, "▁▁▁"),
        ([1, 0], 40, "█▁"),
        ([1], 40, "▁"),
        ([], 40, ""),
        ([1, 2], 0, ""),
        ([1, math.nan, math.inf, 2], 40, "▁█"),
        ([-1.7e308, 1.7e308], 2, "▁█"),
    ],
)
def test_a_character_is_as_high_as_its_values(values: list[float], width: int, drawn: str) -> None:
    assert curve(*values).drawn(width) == drawn


@given(st.lists(st.floats(), max_size=60), st.integers(-3, 50), st.sampled_from([BLOCKS, ASCII_LEVELS]))
def test_no_values_are_too_many_or_too_strange(values: list[float], width: int, levels: str) -> None:
    finite = [value for value in values if math.isfinite(value)]
    made = curve(*values)
    drawn = made.drawn(width, levels)
    assert len(drawn) == min(max(width, 0), len(finite))
    assert set(drawn) <= set(levels)
    assert bool(made) is bool(finite)
    if finite:
        assert (made.last, made.least, made.most) == (finite[-1], min(finite), max(finite))


@pytest.mark.parametrize("count", [511, 512, 513, 5_000, 100_001])
def test_a_long_run_keeps_its_shape_and_not_its_values(count: int) -> None:
    made = curve(*(at / count for at in range(count)))
    assert made.drawn(8) == "▁▂▃▄▅▆▇█"
    assert len(made._points) < 512


def test_ascii_has_a_level_for_each_block() -> None:
    assert len(set(ASCII_LEVELS)) == len(BLOCKS)
    assert ASCII_LEVELS.isascii()
