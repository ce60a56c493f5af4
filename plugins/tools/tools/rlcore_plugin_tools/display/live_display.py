"""A live panel on a terminal; above it scroll the notes and the output of this process and its children."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from rich.console import Console

from rlcore.api.display import Progress, TaskReport, evaluation_line, mean_accuracy
from rlcore_plugin_tools.display.captured_output import CapturedOutput
from rlcore_plugin_tools.display.panel import RunPanel, WorkPanel
from rlcore_plugin_tools.display.terminal import Terminal

__all__ = ["LiveDisplay", "live_display"]

_REDRAW_SECONDS = 0.1
_GUESSED = (80, 24)


def live_display(console: Console) -> AbstractContextManager[LiveDisplay] | None:
    """Return the panel if the terminal can show one (TERM is neither dumb nor absent) and may (no NO_COLOR); otherwise None."""
    able = os.environ.get("TERM", "") not in ("", "dumb", "unknown") and not os.environ.get("NO_COLOR")
    descriptor = _descriptor(console)
    return _live(descriptor, console.encoding) if able and descriptor is not None else None


class LiveDisplay(Progress):
    """A panel that is redrawn in place; notes scroll above it."""

    def __init__(self, terminal: Terminal, *, unicode: bool = True, colours: bool = True) -> None:
        self._terminal = terminal
        self._style = {"unicode": unicode, "colours": colours}
        self._panel = RunPanel(1, **self._style)
        self._work = WorkPanel("", 0, **self._style)
        self._drawn_at = 0.0

    def started(self, folder: Path, total_steps: int) -> None:
        """Show the panel. If a run goes back to its checkpoint, its panel starts again."""
        self._panel = RunPanel(total_steps, **self._style)
        self._terminal.note(f"run folder: {folder}")
        self._terminal.hold(self._panel)

    def note(self, text: str) -> None:
        """Show a note above the panel."""
        self._terminal.note(text)

    def working(self, work: str, done: int, total: int) -> None:
        """Show a bar for work before the first update."""
        if not done:
            self._work = WorkPanel(work, total, **self._style)
            self._terminal.hold(self._work)
        self._work.done = done
        self._terminal.draw()
        if done == total:
            self._terminal.hold(None)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Update the panel, and redraw it a few times a second at most."""
        self._panel.update(step, metrics)
        if time.monotonic() - self._drawn_at >= _REDRAW_SECONDS:
            self._terminal.draw()
            self._drawn_at = time.monotonic()

    def evaluated(self, step: int, reports: Sequence[TaskReport]) -> None:
        """Show a line, and add a point to the curve."""
        accuracy = mean_accuracy(reports)
        if accuracy is not None:
            self._panel.evaluate(step, accuracy)
        self._terminal.note(evaluation_line(step, reports))

    def finished(self) -> None:
        """Draw the last state. The panel stays, since the run may go back to its checkpoint and start again."""
        self._terminal.draw()


def _descriptor(console: Console) -> int | None:
    """Return the descriptor of the console's file if it is a terminal."""
    try:
        descriptor = console.file.fileno()
    except (OSError, ValueError, AttributeError):  # text in memory, or a notebook
        return None
    return descriptor if os.isatty(descriptor) else None


@contextmanager
def _live(descriptor: int, encoding: str) -> Iterator[LiveDisplay]:
    """Show the output of this process and its children through the display, if it would go to the same terminal."""
    own = os.dup(descriptor)
    terminal = Terminal(_writer(own, encoding), lambda: _size(own))
    streams = [stream for stream in (1, 2) if os.isatty(stream) and os.fstat(stream).st_rdev == os.fstat(own).st_rdev]
    unicode = encoding.lower().replace("-", "").startswith("utf")
    try:
        with CapturedOutput(streams, own, terminal.note, terminal.draw):
            yield LiveDisplay(terminal, unicode=unicode)
    finally:
        terminal.hold(None)


def _size(descriptor: int) -> tuple[int, int]:
    """Return columns and rows; a guess if the terminal is gone or does not know its size."""
    try:
        size = os.get_terminal_size(descriptor)
    except OSError:
        return _GUESSED
    return size.columns or _GUESSED[0], size.lines or _GUESSED[1]


def _writer(descriptor: int, encoding: str) -> Callable[[str], None]:
    """Return a function that writes without any buffer, because a signal handler may write during another write. It does nothing once the
    terminal is gone."""
    gone = False

    def write(text: str) -> None:
        nonlocal gone
        rest = text.encode(encoding, errors="replace")
        while rest and not gone:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:  # a program has left the terminal in non-blocking mode
                select.select([], [descriptor], [], 1.0)
            except OSError:
                gone = True

    return write
