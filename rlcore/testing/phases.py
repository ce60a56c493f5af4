"""A log of phases that fakes on one device write, in order, as lines of a file."""

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
    """Return the lines, without repetitions of the line before."""
    return [phase for phase, _ in groupby(Path(path).read_text("utf-8").splitlines())]
