"""Drops output of this thread to standard output, which may contain a run's JSON or its live display."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

__all__ = ["suppressed_output"]


class _OtherThreads(io.TextIOBase):
    """A stream that passes on the output of other threads."""

    def __init__(self, beneath: TextIO) -> None:
        self._beneath, self._hushed = beneath, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._hushed else self._beneath.write(text)

    def flush(self) -> None:
        self._beneath.flush()


@contextmanager
def suppressed_output() -> Iterator[None]:
    """Drop everything that this thread prints inside the block."""
    with redirect_stdout(_OtherThreads(sys.stdout)):
        yield
