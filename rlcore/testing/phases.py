"""What fakes on one device did, in order, as lines of a file: roles may be in other threads, or in other processes."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

__all__ = ["note_phase", "phases_in"]


def note_phase(path: str, phase: str) -> None:
    """Put one line behind the others; "" writes nothing."""
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{phase}\n")


def phases_in(path: str | Path) -> list[str]:
    """The lines, each once as often as it follows itself."""
    return [phase for phase, _ in groupby(Path(path).read_text("utf-8").splitlines())]
