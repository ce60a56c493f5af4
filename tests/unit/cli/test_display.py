"""The display: lines where nobody watches, a panel on a terminal, and both survive a figure that does not exist."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from rlcore.cli.display import LinesDisplay, LiveDisplay, display_on
from rlcore.roles.evaluator import TaskReport


def report(accuracy: float | None, failed: int = 0) -> TaskReport:
    return TaskReport(task="sort", accuracy=accuracy, reward=None, rows=({},) * 9, failed=failed)


def shown(*, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, color_system=None)
    display = display_on(console)
    display.started(Path("runs/x"), 4)
    display.evaluated(0, [report(0.25)])
    display.step(1, {})
    display.note("a [note] with brackets")
    display.step(2, {"reward/mean": 1.5, "response_length/mean": 7.0, "response_tokens": 100.0})
    display.evaluated(1, [report(0.5, failed=4)])
    display.evaluated(2, [report(None)])
    display.finished()
    return out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_every_figure_is_there_and_none_is_invented(terminal: bool) -> None:
    text = shown(terminal=terminal)
    for words in ("runs/x", "0.250", "1.500", "7.0", "a [note] with brackets", "2/4", "sort –", "0.500 (no verdict on 4 of 9)"):
        assert words in text


def test_a_terminal_gets_the_panel_and_a_pipe_gets_lines() -> None:
    assert type(display_on(Console(file=io.StringIO(), force_terminal=True))) is LiveDisplay
    assert type(display_on(Console(file=io.StringIO()))) is LinesDisplay
    assert "\x1b" not in shown(terminal=False)
    assert sum(line.startswith("step ") for line in shown(terminal=False).splitlines()) == 2
