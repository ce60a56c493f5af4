"""What a person sees of a run: while it goes on a live panel on a terminal, plain lines anywhere else; at its end what came of it, and
what to type next."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rlcore.runtime.progress import Progress, Summary

if TYPE_CHECKING:
    from rlcore.roles.evaluator import TaskReport

__all__ = ["LinesDisplay", "LiveDisplay", "RunConsole", "SteadyConsole", "display_on", "plain_console", "show_outcome"]

_REFRESH_PER_SECOND = 4
_FILE_WIDTH = 200


class SteadyConsole(Console):
    """A console whose reader may go away (``| head``): it falls silent, and the run goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class RunConsole(SteadyConsole):
    """A console that also falls silent if its disk is full: a run must not end because of its log."""

    def print(self, *objects: Any, **style: Any) -> None:
        try:
            super().print(*objects, **style)
        except OSError as error:
            self.on_broken_pipe()
            with suppress(OSError):
                print(f"warning: what a run prints cannot be written ({error.strerror}); the run goes on without", file=sys.stderr)


def plain_console() -> SteadyConsole:
    """Standard output; one row a line if it is no terminal, because it is wide enough then."""
    console = SteadyConsole(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console


def display_on(console: Console) -> LinesDisplay:
    """The live panel where the console is a terminal, else lines."""
    return LiveDisplay(console) if console.is_terminal else LinesDisplay(console)


class _Pace:
    """Steps and tokens over time, for tokens/s and the time left."""

    def __init__(self, total_steps: int) -> None:
        self.total_steps = total_steps
        self._started = time.monotonic()
        self._tokens = 0.0
        self._first: int | None = None
        self.step = 0

    def advance(self, step: int, tokens: float) -> None:
        if self._first is None:  # 1, but in a run that goes on
            self._first = step
        self.step = step
        self._tokens += tokens

    @property
    def tokens_per_second(self) -> float:
        return self._tokens / max(time.monotonic() - self._started, 1e-9)

    @property
    def seconds_left(self) -> float:
        made = self.step - self._first + 1 if self._first is not None else 1
        return (time.monotonic() - self._started) / made * (self.total_steps - self.step)


class LinesDisplay(Progress):
    """One line an update, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pace = _Pace(1)
        self._held_out: float | None = None

    def started(self, folder: Path, total_steps: int) -> None:
        self._pace = _Pace(total_steps)
        self.note(f"run folder: {folder}")

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._pace.advance(step, metrics.get("response_tokens", 0.0))
        self._show(metrics)

    def evaluated(self, step: int, reports: Sequence[TaskReport]) -> None:
        known = [report.accuracy for report in reports if report.accuracy is not None]
        self._held_out = sum(known) / len(known) if known else None
        figures = ", ".join(f"{report.task} {_accuracy(report)}" for report in reports)
        self.note(f"held-out accuracy after {step} updates: {figures}")

    def _show(self, metrics: Mapping[str, float]) -> None:
        self.note("  ".join(f"{name} {value}" for name, value in self._figures(metrics)))

    def _figures(self, metrics: Mapping[str, float]) -> list[tuple[str, str]]:
        held_out = "–" if self._held_out is None else f"{self._held_out:.3f}"
        return [
            ("step", f"{self._pace.step}/{self._pace.total_steps}"),
            ("reward", _figure(metrics, "reward/mean", ".3f")),
            ("held-out", held_out),
            ("length", _figure(metrics, "response_length/mean", ".1f")),
            ("tokens/s", f"{self._pace.tokens_per_second:.0f}"),
            ("left", _clock(self._pace.seconds_left)),
        ]


class LiveDisplay(LinesDisplay):
    """A panel that is redrawn in place, with a bar; notes scroll above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, refresh_per_second=_REFRESH_PER_SECOND, transient=False)
        self._last: Mapping[str, float] = {}

    def started(self, folder: Path, total_steps: int) -> None:
        super().started(folder, total_steps)
        self._live.start()

    def evaluated(self, step: int, reports: Sequence[TaskReport]) -> None:
        super().evaluated(step, reports)
        self._show(self._last)

    def finished(self) -> None:
        self._live.stop()

    def _show(self, metrics: Mapping[str, float]) -> None:
        self._last = metrics
        figures = self._figures(metrics)
        table = Table.grid(padding=(0, 3))
        for name, _ in figures:
            table.add_column(name, justify="right")
        table.add_row(*(Text(name, style="dim") for name, _ in figures))
        table.add_row(*(Text(value, style="bold") for _, value in figures))
        grid = Table.grid()
        grid.add_row(_bar(self._pace.step, self._pace.total_steps))
        grid.add_row(table)
        self._live.update(grid)


def _bar(step: int, total: int, width: int = 48) -> Text:
    done = round(width * step / max(total, 1))
    return Text("━" * done, style="green") + Text("━" * (width - done), style="dim")


def _figure(metrics: Mapping[str, float], name: str, form: str) -> str:
    value = metrics.get(name)
    return "–" if value is None else format(value, form)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _accuracy(report: TaskReport) -> str:
    """With how much of the task it is of, where the judge failed on the rest."""
    figure = "–" if report.accuracy is None else format(report.accuracy, ".3f")
    return f"{figure} (no verdict on {report.failed} of {len(report.rows)})" if report.failed else figure


# --- the end of a run ---------------------------------------------------------------------------------------------------


def show_outcome(summary: Summary, console: Console) -> None:
    """Accuracy before and after, a few samples, where everything is, what to type next."""

    def say(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    say()
    say("Stopped early, and saved." if summary.interrupted else "Done.")
    if summary.accuracy_before is not None and summary.accuracy_after is not None:
        say(f"held-out accuracy   {summary.accuracy_before:.3f} before, {summary.accuracy_after:.3f} after")
    say(f"training            {summary.steps} updates, {summary.train_seconds:.1f} s, {summary.tokens_per_second:.0f} tokens/s")
    if summary.shares:
        say(f"time                {_time_line(summary.shares)}")
    say("prompts             " + ", ".join(f"{count} {fate}" for fate, count in summary.ledger.items()))
    for remark in summary.remarks:
        say(f"note                {remark}")
    for name, reason in summary.switched_off.items():
        say(f"switched off        {name}: {reason}")
    for sample in summary.samples:
        say(f"\n  prompt   {sample.prompt}\n  gold     {sample.gold}\n  before   {_line(sample.before)}\n  after    {_line(sample.after)}")
    say(f"\nrun folder          {summary.run}")
    if summary.checkpoint is not None:
        say(f"model               {summary.checkpoint / 'model'} (Hugging Face format)")
        say("\nNext:")
        run, config = shlex.quote(str(summary.run)), shlex.quote(str(summary.run / "run.toml"))
        how = "    # go on" if summary.interrupted else f" {summary.train_on}    # train on"
        say(f"  rlcore resume {run}{how}: schedule, optimizer and data go on, a KL reference stays the first model")
        say(f"  rlcore show config {config}    # what was run, and where each value came from")


def _time_line(shares: Mapping[str, float]) -> str:
    """``trainer busy 97 %, producers busy 63 % (5 % for nothing), bubble 2 %``: the last is the trainer's wait for data or weights."""
    wasted = shares.get("producers/wasted", 0.0)
    for_nothing = f" ({wasted:.0%} for nothing)" if wasted >= 0.005 else ""
    figures = f"trainer busy {shares['trainer_busy']:.0%}, producers busy {shares['producers_busy']:.0%}{for_nothing}"
    return f"{figures}, bubble {shares['bubble']:.0%}".replace("%", " %")


def _line(text: str) -> str:
    return text.replace("\n", "⏎") or "(empty)"
