"""The progress of an evaluation: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["completions_shown"]

_SECONDS = 10.0


@contextmanager
def completions_shown(console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows how many completions are judged, of how many. ``clock``: seconds, never running backwards."""
    if not console.is_terminal:
        yield _ProgressLines(console, clock).update
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("completions judged", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _ProgressLines:
    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console, self._clock = console, clock
        self._said: float | None = None

    def update(self, done: int, total: int) -> None:
        """Print a line if the last one, or the first call, was long ago."""
        now = self._clock()
        if self._said is None:
            self._said = now
        elif now - self._said >= _SECONDS:
            self._said = now
            self._console.print(f"{done} of {total} completions judged", markup=False, highlight=False, soft_wrap=True)
