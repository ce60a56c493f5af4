"""The display of a run in Jupyter: one output of the cell, which is replaced at most twice a second."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from rich.console import Console

from rlcore.api.display import Progress, TaskReport
from rlcore_plugin_tools.display.notebook_page import NotebookPage

__all__ = ["NotebookDisplay", "notebook_display"]

_SECONDS = 0.5
"""The shortest time between two updates of the cell."""

Show = Callable[[Mapping[str, str]], None]
"""Shows HTML and text, by MIME type, in place of those before."""


def notebook_display(console: Console) -> AbstractContextManager[NotebookDisplay] | None:
    """Return the display if the console writes to the cell of a Jupyter kernel; otherwise None."""
    return _opened(_cell()) if console.file in (sys.stdout, sys.stderr) and _in_kernel() else None


class NotebookDisplay(Progress):
    """Shows the events of a run on a page. Any thread may call, because the answer to Ctrl-C comes from one of its own."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._page = NotebookPage()
        self._lock = threading.RLock()
        self._shown, self._work_began = "", 0.0
        self._error: Exception | None = None

    def started(self, folder: Path, total_steps: int) -> None:
        """Show the folder. If a run goes back to its checkpoint, its curves start again."""
        with self._changed() as page:
            page.start(str(folder), total_steps)

    def note(self, text: str) -> None:
        """Show a note."""
        with self._changed() as page:
            page.note(text)

    def working(self, work: str, done: int, total: int) -> None:
        """Show how much of slow work before the first update is done."""
        with self._changed() as page:
            self._work_began = self._work_began if done else time.monotonic()
            page.working(work, done, total, time.monotonic() - self._work_began)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a point to the curve of the reward."""
        with self._changed() as page:
            page.update(step, metrics)

    def evaluated(self, step: int, reports: Sequence[TaskReport]) -> None:
        """Add a point to the curve of accuracy, and show answers."""
        with self._changed() as page:
            page.evaluate(step, reports)

    def redraw(self) -> None:
        """Replace the output from the thread that draws. The next event raises its error."""
        try:
            self.draw()
        except Exception as error:
            self._error = error

    def draw(self) -> None:
        """Replace the output if it has changed."""
        with self._lock:
            html, text = self._page.html(), self._page.text()
        if html != self._shown:
            self._shown = html
            self._show({"text/html": html, "text/plain": text})

    def end(self, state: str) -> None:
        """Draw the last state of the run."""
        with self._lock:
            self._page.state = "stopped early, and saved" if self._page.interrupted and state == "done" else state
        self.draw()

    @contextmanager
    def _changed(self) -> Iterator[NotebookPage]:
        with self._lock:
            if self._error is not None:
                raise self._error
            yield self._page


@contextmanager
def _opened(show: Show) -> Iterator[NotebookDisplay]:
    """Redraw from a thread, so that a run never waits for the notebook, and so that durations change between events."""
    warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm of other libraries wants ipywidgets, which is not needed
    display, ended = NotebookDisplay(show), threading.Event()
    display.draw()
    # the context holds the cell that the kernel executes
    words = (contextvars.copy_context(), display, ended)
    drawing = threading.Thread(target=_redraw, args=words, name="rlcore-notebook", daemon=True)
    drawing.start()
    state = "done"
    try:
        yield display
    except BaseException as error:
        state = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
        raise
    finally:
        ended.set()
        drawing.join()
        display.end(state)


def _redraw(context: contextvars.Context, display: NotebookDisplay, ended: threading.Event) -> None:
    while not ended.wait(_SECONDS):
        context.run(display.redraw)


def _in_kernel() -> bool:
    """Return whether this process is a Jupyter kernel. A kernel has imported IPython; nothing else imports it here."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _cell() -> Show:
    """Return a function that shows a new output, and from then on replaces it."""
    publish: Any = sys.modules["IPython"].display.display
    place, made = f"rlcore-{uuid4().hex}", False

    def show(shown: Mapping[str, str]) -> None:
        nonlocal made
        publish(dict(shown), raw=True, display_id=place, update=made)
        made = True

    return show
