"""The progress of judging and the time left: a bar on a terminal, a line every ten seconds elsewhere; on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rlcore.api.commands import Registry, SteadyConsole
from rlcore.api.data import DataError, read_rows

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Shown", "progress", "rows_of"]

_SECONDS = 10.0
_COUNTED_BYTES = 1 << 30  # a larger file is not read a second time only to count its rows


class Shown(Protocol):
    """A display of the progress."""

    def update(self, completions: int, rows: int) -> None:
        """Show that so many completions of so many rows are judged."""


@contextmanager
def progress(total: Callable[[], int | None]) -> Iterator[Shown]:
    """Show the number of judged completions while the block runs. ``total`` is called once and returns the number of rows, None if
    unknown."""
    console = SteadyConsole(stderr=True)
    if not console.is_terminal:
        yield _Lines(console, total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, bar.add_task("judging", total=total()))


def rows_of(path: str, registry: Registry, limit: int | None) -> int | None:
    """Return the number of rows of a data set; None if counting would take long, as for one on the hub."""
    file = Path(path)
    if not file.is_file() or file.stat().st_size > _COUNTED_BYTES:
        return limit
    try:
        count = _lines(file) if file.suffix == ".jsonl" else sum(1 for _ in read_rows(path, registry))
    except DataError:  # the judging reports the error
        return limit
    return count if limit is None else min(count, limit)


def _lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for line in lines if line.strip())


class _Bar:
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def update(self, completions: int, rows: int) -> None:
        self._bar.update(self._task, completed=rows, description=f"judging, {completions} completions")


class _Lines:
    def __init__(self, console: SteadyConsole, total: Callable[[], int | None]) -> None:
        self._console = console
        self._count = total
        self._total: int | None = None
        self._counted = False
        self._started = self._said = time.monotonic()

    def update(self, completions: int, rows: int) -> None:
        now = time.monotonic()
        if now - self._said >= _SECONDS:
            self._said = now
            passed = now - self._started
            line = f"{completions} completions judged, {completions / passed:.1f} a second{self._left(rows, passed)}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _left(self, rows: int, passed: float) -> str:
        if not self._counted:
            self._counted, self._total = True, self._count()
        if not self._total or rows < 1 or rows >= self._total:
            return ""
        return f", {rows} of {self._total} rows, about {_spoken(passed * (self._total - rows) / rows)} left"


def _spoken(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
