"""How far the judging is: a bar on a terminal, a line every ten seconds anywhere else; always on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rlcore.api.commands import SteadyConsole

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Shown", "progress", "rows_of"]

_SECONDS = 10.0
_COUNTED_BYTES = 1 << 30  # a larger file is not read once more only to know how many rows it has


class Shown(Protocol):
    """What shows the progress."""

    def update(self, rows: int) -> None:
        """So many completions are judged."""


@contextmanager
def progress(total: Callable[[], int | None]) -> Iterator[Shown]:
    """Show how many completions are judged while the block runs; ``total`` is called if there is a bar to show it."""
    console = SteadyConsole(stderr=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("judging"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, bar.add_task("judging", total=total()))


def rows_of(file: Path, limit: int | None) -> int | None:
    """Lines of a JSONL file; None if counting would take long, or if its lines are no rows. With lists of completions a lower bound."""
    if file.suffix != ".jsonl" or not file.is_file() or file.stat().st_size > _COUNTED_BYTES:
        return limit
    with file.open("rb") as lines:
        count = sum(1 for line in lines if line.strip())
    return count if limit is None else min(count, limit)


class _Bar:
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def update(self, rows: int) -> None:
        self._bar.update(self._task, completed=rows)


class _Lines:
    def __init__(self, console: SteadyConsole) -> None:
        self._console = console
        self._started = self._said = time.monotonic()

    def update(self, rows: int) -> None:
        now = time.monotonic()
        if now - self._said >= _SECONDS:
            self._said = now
            rate = rows / (now - self._started)
            self._console.print(f"{rows} completions judged, {rate:.1f} a second", markup=False, highlight=False, soft_wrap=True)
