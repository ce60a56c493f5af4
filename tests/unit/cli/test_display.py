"""The display: which one it is, and lines where nobody watches."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from rlcore.cli.display import LinesDisplay, LiveDisplay, QuietDisplay, is_live, shown
from rlcore.cli.terminal import Terminal
from rlcore.contracts.crew import TaskReport
from rlcore.runtime.progress import Progress


def report(accuracy: float | None, failed: int = 0) -> TaskReport:
    return TaskReport(task="sort", accuracy=accuracy, reward=None, rows=({},) * 9, failed=failed)


def play(display: Progress) -> None:
    display.started(Path("runs/x"), 4)
    display.evaluated(0, [report(0.25)])
    display.step(1, {})
    display.note("a [note] with brackets")
    display.note("warning: look")
    display.step(2, {"reward/mean": 1.5, "response_length/mean": 7.0, "response_tokens": 100.0})
    display.evaluated(1, [report(0.5, failed=4)])
    display.evaluated(2, [report(None)])
    display.finished()


def lines() -> str:
    out = io.StringIO()
    play(LinesDisplay(Console(file=out, width=100, color_system=None)))
    return out.getvalue()


def on_terminal() -> str:
    written: list[str] = []
    terminal = Terminal(written.append, lambda: (100, 30))
    play(LiveDisplay(terminal))
    return "".join(written)


@pytest.mark.parametrize("text", [lines(), on_terminal()], ids=["lines", "live"])
def test_every_figure_is_there_and_none_is_invented(text: str) -> None:
    for words in ("runs/x", "0.250", "1.500", "7.0", "a [note] with brackets", "2/4", "sort –", "0.500 (no verdict on 4 of 9)"):
        assert words in text


def test_lines_hold_no_escapes_and_one_line_an_update() -> None:
    assert "\x1b" not in lines()
    assert sum(line.startswith("step ") for line in lines().splitlines()) == 2


def test_a_note_does_not_steer_the_terminal() -> None:
    out = io.StringIO()
    LinesDisplay(Console(file=out, width=100, color_system=None)).note("warning: a\x1b]0;owned\x07\n\x9b2J")
    assert out.getvalue() == "warning: a\\x1b]0;owned\\x07\n\\x9b2J\n"


def test_quiet_says_warnings_alone() -> None:
    out = io.StringIO()
    display = QuietDisplay(Console(file=out, width=100))
    play(display)
    display.note("interrupted: this step is finished and saved")
    assert out.getvalue().splitlines() == ["warning: look", "interrupted: this step is finished and saved"]


@pytest.mark.parametrize(
    ("updates", "seconds", "least", "most"),
    [(20, 0.0, 20, 20), (10_000, 20.0, 40, 42), (10_000, 0.0, 21, 21), (100, 100.0, 100, 100), (60, 30.0, 49, 51)],
)
def test_fast_updates_do_not_fill_a_log(updates: int, seconds: float, least: int, most: int) -> None:
    """Twenty at once, then one a second, and the last; with every note and evaluation."""
    moments = itertools.count()
    out = io.StringIO()
    display = LinesDisplay(Console(file=out, width=200), now=lambda: next(moments) * seconds / updates)
    display.started(Path("runs/x"), updates)
    for step in range(1, updates + 1):
        display.step(step, {"reward/mean": 0.5})
        if step % (updates // 10) == 0:
            display.evaluated(step, [report(0.5)])
    display.finished()
    found = out.getvalue().splitlines()
    said = [line for line in found if line.startswith("step ")]
    assert least <= len(said) <= most
    assert said[-1].startswith(f"step {updates}/{updates} ")
    assert sum(line.startswith("held-out") for line in found) == 10


def test_a_run_that_ends_early_shows_the_update_that_it_ends_with() -> None:
    out = io.StringIO()
    display = LinesDisplay(Console(file=out, width=200), now=lambda: 0.0)
    display.started(Path("runs/x"), 1000)
    for step in range(1, 40):
        display.step(step, {})
    display.finished()
    assert out.getvalue().splitlines()[-1].startswith("step 39/1000 ")


@pytest.fixture
def terminal_file() -> Iterator[io.TextIOWrapper]:
    own, other = os.openpty()
    with os.fdopen(other, "w") as file:
        yield file
    os.close(own)


@pytest.mark.parametrize(
    ("variables", "live"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": ""}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
    ],
)
def test_a_terminal_that_can_and_may_gets_the_panel(
    variables: dict[str, str], live: bool, monkeypatch: pytest.MonkeyPatch, terminal_file: io.TextIOWrapper
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    console = Console(file=terminal_file)
    assert is_live(console) is live
    if not live:
        with shown(console) as display:
            assert type(display) is LinesDisplay


def test_neither_a_pipe_nor_json_nor_quiet_gets_it(monkeypatch: pytest.MonkeyPatch, terminal_file: io.TextIOWrapper) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not is_live(Console(file=io.StringIO()))
    for choice, kind in (
        ({"as_json": True}, LinesDisplay),
        ({"quiet": True}, QuietDisplay),
        ({"quiet": True, "as_json": True}, QuietDisplay),
    ):
        with shown(Console(file=terminal_file), **choice) as display:
            assert type(display) is kind
