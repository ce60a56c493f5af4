"""What a person sees of a run while it goes on: a live panel on a terminal, lines anywhere else, warnings alone if that is wanted."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from rlcore.cli.captured_output import CapturedOutput
from rlcore.cli.panel import RunPanel, UpdatePace, clock, figure
from rlcore.cli.terminal import Terminal
from rlcore.host.visible_text import visible
from rlcore.runtime.progress import Progress

if TYPE_CHECKING:
    from rlcore.contracts.crew import TaskReport

__all__ = ["LinesDisplay", "LiveDisplay", "QuietDisplay", "is_live", "shown"]

_AT_ONCE = 20
"""Lines of updates that come one after the other, however fast."""
_A_SECOND = 1.0
"""Lines of updates a second, after that."""
_REDRAW_SECONDS = 0.1
_GUESSED = (80, 24)
_QUIET_TOO = ("warning", "interrupted")


@contextmanager
def shown(console: Console, *, quiet: bool = False, as_json: bool = False) -> Iterator[Progress]:
    """The display of a run, until its last process has ended: what suits the console and what the user typed."""
    if quiet:
        yield QuietDisplay(console)
    elif as_json or not is_live(console):
        yield LinesDisplay(console)
    else:
        with _live(console) as display:
            yield display


def is_live(console: Console) -> bool:
    """Whether a panel can be drawn: on a terminal that is able to (TERM is neither dumb nor absent) and that may (no NO_COLOR)."""
    able = os.environ.get("TERM", "") not in ("", "dumb", "unknown") and not os.environ.get("NO_COLOR")
    return able and _descriptor(console) is not None


class LinesDisplay(Progress):
    """Lines, for logs and pipes: each note and evaluation, and updates, of which fast ones are left out."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._console, self._now = console, now
        self._pace = UpdatePace(1)
        self._held_out: float | None = None
        self._allowed, self._counted = float(_AT_ONCE), now()
        self._left_out: Mapping[str, float] | None = None

    def started(self, folder: Path, total_steps: int) -> None:
        """The folder; updates count from here."""
        self._pace = UpdatePace(total_steps)
        self.note(f"run folder: {folder}")

    def note(self, text: str) -> None:
        """With what a terminal would obey written out."""
        self._console.print(visible(text, lines=True), markup=False, highlight=False, soft_wrap=True)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A line, if not too many came before it; the last one in any case."""
        self._pace.advance(step, metrics.get("response_tokens", 0.0))
        now = self._now()
        self._allowed = min(self._allowed + (now - self._counted) * _A_SECOND, _AT_ONCE)
        self._counted = now
        self._left_out = metrics
        if self._allowed >= 1 or step >= self._pace.total_steps:
            self._allowed -= 1
            self._show()

    def evaluated(self, step: int, reports: Sequence[TaskReport]) -> None:
        """A line."""
        self._held_out = _mean_accuracy(reports)
        self.note(evaluation_line(step, reports))

    def finished(self) -> None:
        """The last update, if its line was left out."""
        self._show()

    def _show(self) -> None:
        metrics, self._left_out = self._left_out, None
        if metrics is not None:
            self.note("  ".join(f"{name} {value}" for name, value in self._figures(metrics)))

    def _figures(self, metrics: Mapping[str, float]) -> list[tuple[str, str]]:
        return [
            ("step", f"{self._pace.step}/{self._pace.total_steps}"),
            ("reward", figure(metrics, "reward/mean", ".3f")),
            ("held-out", "–" if self._held_out is None else f"{self._held_out:.3f}"),
            ("length", figure(metrics, "response_length/mean", ".1f")),
            ("tokens/s", f"{self._pace.tokens_per_second:.0f}"),
            ("left", clock(self._pace.seconds_left)),
        ]


class QuietDisplay(LinesDisplay):
    """Warnings alone, and the answer to Ctrl-C."""

    def note(self, text: str) -> None:
        """If it is one of those."""
        if text.startswith(_QUIET_TOO):
            super().note(text)

    def _show(self) -> None:
        pass


class LiveDisplay(Progress):
    """A panel that is redrawn in place; notes scroll above it."""

    def __init__(self, terminal: Terminal, *, unicode: bool = True, colours: bool = True) -> None:
        self._terminal = terminal
        self._style = {"unicode": unicode, "colours": colours}
        self._panel = RunPanel(1, **self._style)
        self._drawn_at = 0.0

    def started(self, folder: Path, total_steps: int) -> None:
        """The panel appears; that of a run that goes back to its checkpoint begins anew."""
        self._panel = RunPanel(total_steps, **self._style)
        self._terminal.note(f"run folder: {folder}")
        self._terminal.hold(self._panel)

    def note(self, text: str) -> None:
        """Above the panel."""
        self._terminal.note(text)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """The panel changes, a few times a second at most."""
        self._panel.update(step, metrics)
        if time.monotonic() - self._drawn_at >= _REDRAW_SECONDS:
            self._terminal.draw()
            self._drawn_at = time.monotonic()

    def evaluated(self, step: int, reports: Sequence[TaskReport]) -> None:
        """A line, and a point of the curve."""
        accuracy = _mean_accuracy(reports)
        if accuracy is not None:
            self._panel.evaluate(step, accuracy)
        self._terminal.note(evaluation_line(step, reports))

    def finished(self) -> None:
        """The last state; it stays a panel, for the run may go back to its checkpoint and begin again."""
        self._terminal.draw()


def evaluation_line(step: int, reports: Sequence[TaskReport]) -> str:
    """Every task, with how much of it the figure is of where the judge failed on the rest."""
    figures = ", ".join(f"{report.task} {_accuracy(report)}" for report in reports)
    return f"held-out accuracy after {step} updates: {figures}"


def _accuracy(report: TaskReport) -> str:
    told = "–" if report.accuracy is None else format(report.accuracy, ".3f")
    return f"{told} (no verdict on {report.failed} of {len(report.rows)})" if report.failed else told


def _mean_accuracy(reports: Sequence[TaskReport]) -> float | None:
    known = [report.accuracy for report in reports if report.accuracy is not None]
    return sum(known) / len(known) if known else None


# --- the terminal of this process ---------------------------------------------------------------------------------------


def _descriptor(console: Console) -> int | None:
    """Of the console's file, if it is a terminal."""
    try:
        descriptor = console.file.fileno()
    except (OSError, ValueError, AttributeError):  # a text in memory, a notebook
        return None
    return descriptor if os.isatty(descriptor) else None


@contextmanager
def _live(console: Console) -> Iterator[LiveDisplay]:
    """Inside, all that this process and its children print goes through the display, if it would go to the same terminal."""
    descriptor = _descriptor(console)
    assert descriptor is not None, "is_live said so"
    own = os.dup(descriptor)
    terminal = Terminal(_writer(own, console.encoding), lambda: _size(own))
    streams = [stream for stream in (1, 2) if os.isatty(stream) and os.fstat(stream).st_rdev == os.fstat(own).st_rdev]
    unicode = console.encoding.lower().replace("-", "").startswith("utf")
    try:
        with CapturedOutput(streams, own, terminal.note, terminal.draw):
            yield LiveDisplay(terminal, unicode=unicode)
    finally:
        terminal.hold(None)


def _size(descriptor: int) -> tuple[int, int]:
    """Columns and rows; a guess for a terminal that has gone, or does not know its own."""
    try:
        size = os.get_terminal_size(descriptor)
    except OSError:
        return _GUESSED
    return size.columns or _GUESSED[0], size.lines or _GUESSED[1]


def _writer(descriptor: int, encoding: str) -> Callable[[str], None]:
    """Writes past every buffer, because a signal handler may do so amid another write; falls silent if the terminal has gone."""
    gone = False

    def write(text: str) -> None:
        nonlocal gone
        rest = text.encode(encoding, errors="replace")
        while rest and not gone:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:  # a program has left the terminal so
                select.select([], [descriptor], [], 1.0)
            except OSError:
                gone = True

    return write
