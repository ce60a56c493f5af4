"""The panel fits whatever room there is, and drops what is least dear first."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rlcore_plugin_tools.display.panel import RunPanel, WorkPanel

from rlcore.api.display import format_duration, format_metric

COLOURS = re.compile(r"\x1b\[\d*m")


def panel(steps: int = 30, *, unicode: bool = True, colours: bool = False) -> RunPanel:
    made = RunPanel(40, unicode=unicode, colours=colours)
    for step in range(1, steps + 1):
        made.update(step, {"reward/mean": step / 40, "response_length/mean": 41.25, "response_tokens": 100.0})
    return made


def test_a_wide_one_shows_everything() -> None:
    made = panel()
    for step, accuracy in ((0, 0.25), (10, 0.75), (20, 0.5)):
        made.evaluate(step, accuracy)
    bar, figures, reward, held_out = made(100, 20)
    assert len(bar) == 48
    assert re.fullmatch(r"step 30/40   left 0:00   length 41\.2   tokens/s \d+   since 0:00", figures)
    assert re.fullmatch(r"reward    0\.750 ▁+▂+▃+▄+▅+▆+▇+█+  0\.025 to 0\.75", reward)
    assert len(reward) == len("reward    0.750 ") + 30 + len("  0.025 to 0.75")
    assert held_out == "held-out  0.500 ▁█▅  best 0.750 at 10"


@pytest.mark.parametrize(("columns", "rows"), [(80, 5), (30, 5), (3, 5), (80, 1), (80, 0)])
def test_work_before_the_first_update_has_a_bar_and_the_time_left(columns: int, rows: int) -> None:
    made = WorkPanel("counting the tokens of prompts", 200_000, colours=False)
    assert made(80, 5) == ["━" * 48, "counting the tokens of prompts: 0 of 200000"]
    made.done = 50_000
    lines = made(columns, rows)
    assert len(lines) == min(rows, 2)
    assert all(cell_len(line) <= columns for line in lines)
    if (columns, rows) == (80, 5):
        assert lines[1] == "counting the tokens of prompts: 50000 of 200000 (25 %), 0:00 left"


def test_at_forty_columns_the_curves_are_left() -> None:
    made = panel()
    made.evaluate(0, 0.25)
    lines = made(40, 20)
    assert [line.split()[0] for line in lines[1:]] == ["step", "reward", "held-out"]
    assert "length" in lines[1]
    assert "since" not in lines[1]


def test_before_the_first_update_it_says_what_it_waits_for() -> None:
    assert "waiting for the first batch" in panel(0)(80, 20)[1]


def test_without_unicode_it_is_ascii() -> None:
    made = panel(unicode=False)
    made.update(31, {})
    made.evaluate(0, 0.25)
    assert all(line.isascii() for line in made(100, 20))


@given(st.integers(0, 120), st.integers(0, 8), st.lists(st.floats(), max_size=5), st.booleans(), st.booleans())
def test_no_line_is_wider_than_the_room_and_none_is_too_many(
    columns: int, rows: int, rewards: list[float], unicode: bool, colours: bool
) -> None:
    made = RunPanel(10**9, unicode=unicode, colours=colours)
    for step, reward in enumerate(rewards, 1):
        made.update(step * 10**8, {"reward/mean": reward, "response_length/mean": reward, "response_tokens": 1e12})
        made.evaluate(step, reward)
    lines = made(columns, rows)
    assert len(lines) <= rows
    assert all(cell_len(COLOURS.sub("", line)) <= columns for line in lines)
    assert colours or not any("\x1b" in line for line in lines)


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (59.6, "1:00"), (3723, "1:02:03"), (math.nan, "–"), (math.inf, "–")])
def test_a_time_is_short(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


def test_a_figure_that_is_absent_or_no_number_is_a_dash() -> None:
    assert [format_metric({"a": 0.5, "b": math.nan}, name, ".2f") for name in "abc"] == ["0.50", "–", "–"]
