"""Consoles for a run, which must not end because its output has no reader or the disk of its log is full."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

from rich.console import Console

__all__ = ["RunConsole", "SteadyConsole", "plain_console"]

_FILE_WIDTH = 200


class SteadyConsole(Console):
    """A console that becomes silent if its reader goes away (``| head``), while the run continues."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class RunConsole(SteadyConsole):
    """A console that also becomes silent if its disk is full: a run must not end because of its log."""

    def print(self, *objects: Any, **style: Any) -> None:
        try:
            super().print(*objects, **style)
        except OSError as error:
            self.on_broken_pipe()
            with suppress(OSError):
                print(f"warning: the output of the run cannot be written ({error.strerror}); the run continues without it", file=sys.stderr)


def plain_console() -> SteadyConsole:
    """Return a console for standard output. If it is not a terminal, it is wide enough for one row per line."""
    console = SteadyConsole(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console
