"""The live display: on which terminals it appears, and that it shows every figure."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rlcore_plugin_tools import rlcore_open_display
from rlcore_plugin_tools.display.live_display import LiveDisplay
from rlcore_plugin_tools.display.terminal import Terminal

from rlcore.api.display import TaskReport


def report(accuracy: float | None, failed: int = 0) -> TaskReport:
    return TaskReport(task="sort", accuracy=accuracy, reward=None, rows=({},) * 9, failed=failed)


def on_terminal() -> str:
    written: list[str] = []
    display = LiveDisplay(Terminal(written.append, lambda: (100, 30)))
    display.started(Path("runs/x"), 4)
    display.evaluated(0, [report(0.25)])
    display.step(1, {})
    display.note("a [note] with brackets")
    display.note("warning: look")
    display.step(2, {"reward/mean": 1.5, "response_length/mean": 7.0, "response_tokens": 100.0})
    display.evaluated(1, [report(0.5, failed=4)])
    display.evaluated(2, [report(None)])
    display.finished()
    return "".join(written)


def test_every_figure_is_there_and_none_is_invented() -> None:
    text = on_terminal()
    for words in ("runs/x", "0.250", "1.500", "7.0", "a [note] with brackets", "2/4", "sort –", "0.500 (no verdict on 4 of 9)"):
        assert words in text


def test_slow_work_is_shown_until_it_is_done() -> None:
    written: list[str] = []
    display = LiveDisplay(Terminal(written.append, lambda: (100, 30)))
    for done in (0, 100_000, 200_000):
        display.working("checking gold answers", done, 200_000)
    display.note("a note")
    text = "".join(written)
    assert "checking gold answers: 0 of 200000" in text
    assert "checking gold answers: 100000 of 200000 (50 %)" in text
    assert text.endswith("a note\n")


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
    assert (rlcore_open_display(Console(file=terminal_file)) is not None) is live


def test_a_pipe_does_not_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert rlcore_open_display(Console(file=io.StringIO())) is None
