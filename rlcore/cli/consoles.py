"""Consoles that outlive their reader: a run must not end because nobody listens, or because the disk of its log is full."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

from rich.console import Console

__all__ = ["RunConsole", "SteadyConsole", "plain_console"]

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
