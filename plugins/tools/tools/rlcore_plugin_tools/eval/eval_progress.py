"""The progress of an evaluation: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rlcore_plugin_tools.runs.figures_text import clock

__all__ = ["completions_shown"]

_SECONDS = 10.0


@contextmanager
def completions_shown(console: Console, seconds: Callable[[], float] = time.monotonic) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows how many completions are judged, of how many. ``seconds``: a clock, never running backwards."""
    if not console.is_terminal:
        yield _ProgressLines(console, seconds).update
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("completions judged", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _ProgressLines:
    def __init__(self, console: Console, seconds: Callable[[], float]) -> None:
        self._console, self._clock = console, seconds
        self._said: float | None = None
        self._begun: tuple[float, int] = (0.0, 0)
        """The time of the first call, and how many were judged then."""

    def update(self, done: int, total: int) -> None:
        """Print a line if the last one, or the first call, was long ago."""
        now = self._clock()
        if self._said is None:
            self._said, self._begun = now, (now, done)
        elif now - self._said >= _SECONDS:
            self._said = now
            text = f"{done} of {total} completions judged{self._left(now, done, total)}"
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _left(self, now: float, done: int, total: int) -> str:
        since, before = self._begun
        return f", about {clock((now - since) / (done - before) * (total - done))} left" if before < done < total else ""
