"""The display of a run: that of a plugin, or lines, or only warnings if the user wants that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rlcore.cli.throughput import UpdatePace, format_duration, format_metric, format_work
from rlcore.config.resolve import STALENESS
from rlcore.host.terminal_text import escape_control
from rlcore.registry.error_context import reason
from rlcore.runtime.progress import Progress

if TYPE_CHECKING:
    from rlcore.config import Plan
    from rlcore.contracts.runtime_interface import TaskReport
    from rlcore.registry.plugin_registry import Registry

__all__ = ["LinesDisplay", "QuietDisplay", "evaluation_line", "mean_accuracy", "run_shown", "shown"]

_AT_ONCE = 20
"""The number of update lines that may follow each other at any speed."""
_A_SECOND = 1.0
"""Update lines per second after that."""
_WORK_SECONDS = 10.0
_QUIET_TOO = ("warning", "interrupted")


@contextmanager
def run_shown(plan: Plan, console: Console, *, quiet: bool = False, as_json: bool = False) -> Iterator[Progress]:
    """Open the display of the plan's run, as ``shown`` does, and show the notes of the plan."""
    overlap = [item for item in plan.derived if item.startswith(STALENESS)]
    told = str(plan.reproducible)
    notes = ["; ".join([*overlap, told]), *(note for note in plan.notes if note not in (*plan.derived, told))]
    if plan.derived:
        notes.insert(
            0, f"{len(plan.derived)} settings are derived from the others; rlcore show config, with the same files and flags, shows how"
        )
    with shown(console, plan.registry, quiet=quiet, as_json=as_json) as display:
        for note in notes:
            display.note(note)
        yield display


@contextmanager
def shown(console: Console, registry: Registry, *, quiet: bool = False, as_json: bool = False) -> Iterator[Progress]:
    """Open the display of a run that fits the console and the typed flags, until its last process has ended."""
    with ExitStack() as stack:
        if quiet:
            yield QuietDisplay(console)
        elif as_json:
            yield LinesDisplay(console)
        else:
            yield _of_a_plugin(console, registry, stack)


def _of_a_plugin(console: Console, registry: Registry, stack: ExitStack) -> Progress:
    """Return the first display that a plugin offers for this console, opened; lines if there is none."""
    lines = LinesDisplay(console)
    for owner, manager in registry.hooks():
        try:
            for context in manager.hook.rlcore_open_display(console=console):
                display = _PluginDisplay(owner, context, lines)
                stack.push(display.close)
                return display
        except (Exception, SystemExit) as error:
            lines.note(f"warning: the display of {owner} cannot be opened: {reason(error)}")
    return lines


class LinesDisplay(Progress):
    """Prints lines, for logs and pipes: every note and evaluation, and updates, of which fast ones are skipped."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._console, self._now = console, now
        self._pace = UpdatePace(1)
        self._held_out: float | None = None
        self._allowed, self._counted = float(_AT_ONCE), now()
        self._left_out: Mapping[str, float] | None = None
        self._work_began = self._work_told = 0.0

    def started(self, folder: Path, total_steps: int) -> None:
        """Print the folder. The rate of updates is measured from here."""
        self._pace = UpdatePace(total_steps)
        self.note(f"run folder: {folder}")

    def note(self, text: str) -> None:
        """Print the text, with control characters of terminals escaped."""
        self._console.print(escape_control(text, lines=True), markup=False, highlight=False, soft_wrap=True)

    def working(self, work: str, done: int, total: int) -> None:
        """Print a line every ten seconds."""
        now = self._now()
        if not done:
            self._work_began = self._work_told = now
        elif now - self._work_told >= _WORK_SECONDS:
            self._work_told = now
            self.note(f"{work}: {format_work(done, total, now - self._work_began)}")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print a line unless too many came before it. The last update always has one."""
        self._pace.advance(step, metrics.get("response_tokens", 0.0))
        now = self._now()
        self._allowed = min(self._allowed + (now - self._counted) * _A_SECOND, _AT_ONCE)
        self._counted = now
        self._left_out = metrics
        if self._allowed >= 1 or step >= self._pace.total_steps:
            self._allowed -= 1
            self._show()

    def evaluated(self, step: int, reports: Sequence[TaskReport]) -> None:
        """Print a line."""
        self._held_out = mean_accuracy(reports)
        self.note(evaluation_line(step, reports))

    def finished(self) -> None:
        """Print the last update if its line was skipped."""
        self._show()

    def _show(self) -> None:
        metrics, self._left_out = self._left_out, None
        if metrics is not None:
            self.note("  ".join(f"{name} {value}" for name, value in self._figures(metrics)))

    def _figures(self, metrics: Mapping[str, float]) -> list[tuple[str, str]]:
        return [
            ("step", f"{self._pace.step}/{self._pace.total_steps}"),
            ("reward", format_metric(metrics, "reward/mean", ".3f")),
            ("held-out", "–" if self._held_out is None else f"{self._held_out:.3f}"),
            ("length", format_metric(metrics, "response_length/mean", ".1f")),
            ("tokens/s", f"{self._pace.tokens_per_second:.0f}"),
            ("left", format_duration(self._pace.seconds_left)),
        ]


class QuietDisplay(LinesDisplay):
    """Prints only warnings and the answer to Ctrl-C."""

    def note(self, text: str) -> None:
        """Print the text if it is one of these."""
        if text.startswith(_QUIET_TOO):
            super().note(text)

    def _show(self) -> None:
        pass


class _PluginDisplay(Progress):
    """The display of a plugin. If it raises, it is reported once and replaced by lines, so that the run continues."""

    def __init__(self, owner: str, context: AbstractContextManager[Progress], lines: LinesDisplay) -> None:
        self._owner, self._context, self._lines = owner, context, lines
        self._display = context.__enter__()

    def started(self, folder: Path, total_steps: int) -> None:
        self._lines._pace = UpdatePace(total_steps)  # for lines that begin later
        self._call("started", folder, total_steps)

    def note(self, text: str) -> None:
        self._call("note", text)

    def working(self, work: str, done: int, total: int) -> None:
        self._call("working", work, done, total)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._call("step", step, metrics)

    def evaluated(self, step: int, reports: Sequence[TaskReport]) -> None:
        self._call("evaluated", step, reports)

    def finished(self) -> None:
        self._call("finished")

    def close(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave its context. An error of the run propagates, whatever the plugin returns."""
        try:
            self._context.__exit__(kind, error, trace)
        except (Exception, SystemExit) as raised:
            self._lines.note(f"warning: the display of {self._owner} cannot be closed: {reason(raised)}")

    def _call(self, name: str, *given: Any) -> None:
        try:
            getattr(self._display, name)(*given)
        except (Exception, SystemExit) as error:
            if self._display is self._lines:
                raise
            self._display = self._lines
            self._lines.note(f"warning: the display of {self._owner} is switched off for the rest of the run: {reason(error)}")
            getattr(self._lines, name)(*given)


def evaluation_line(step: int, reports: Sequence[TaskReport]) -> str:
    """Return a line with every task, and with the number of rollouts without a verdict if scoring failed on some."""
    figures = ", ".join(f"{report.task} {_accuracy(report)}" for report in reports)
    return f"held-out accuracy after {step} updates: {figures}"


def _accuracy(report: TaskReport) -> str:
    told = "–" if report.accuracy is None else format(report.accuracy, ".3f")
    return f"{told} (no verdict on {report.failed} of {len(report.rows)})" if report.failed else told


def mean_accuracy(reports: Sequence[TaskReport]) -> float | None:
    """Return the mean accuracy of the tasks that have one, None if none has."""
    known = [report.accuracy for report in reports if report.accuracy is not None]
    return sum(known) / len(known) if known else None
