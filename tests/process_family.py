"""The processes below one, and whether they have ended. Linux."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["alive", "await_end", "descendants"]


def descendants(pid: int) -> list[int]:
    """Pids of the descendants of a process, but for Python's own servants."""
    try:
        mine = [int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()]
        mine = [child for child in mine if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes()]
    except FileNotFoundError:  # it ended meanwhile
        return []
    return [*mine, *(pid for child in mine for pid in descendants(child))]


def alive(pid: int) -> bool:
    """Whether it runs, or is stopped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def await_end(pids: Iterable[int], seconds: float) -> None:
    """AssertionError if one of them has not ended by then."""
    until = time.monotonic() + seconds
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < until, f"processes {left} are still there after {seconds:g} s"
        time.sleep(0.1)
