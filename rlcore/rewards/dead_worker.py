"""End the processes that a worker leaves behind: they left its process group, such as a daemon that forked twice.

They are found by a mark in their environment. Every process inherits it, whatever its parents, session and group. A process that was
started with a new environment is not found.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import time
from pathlib import Path

__all__ = ["MARK", "kill_orphans", "new_mark"]

MARK = "RLCORE_REWARD_WORKER"
"""The environment variable."""
_PATIENCE = 1.0  # seconds: a killed process takes a moment to end, and may have forked before


def new_mark() -> str:
    """Return the mark for another worker. A worker inside a worker has the marks of both."""
    return f"{os.environ.get(MARK, '')}/{secrets.token_hex(8)}"


def kill_orphans(mark: str) -> int:
    """Kill processes with this mark until there is none. Return how many were found; 0 if the system has no /proc."""
    found: set[int] = set()
    limit = time.monotonic() + _PATIENCE
    while (now := _marked(mark.encode())) and time.monotonic() < limit:
        for pid in now:
            _kill(pid, mark.encode())
        found.update(now)
    return len(found)


def _marked(mark: bytes) -> list[int]:
    try:
        with os.scandir("/proc") as entries:
            pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    except OSError:
        return []
    return [pid for pid in pids if _bears(pid, mark)]


def _bears(pid: int, mark: bytes) -> bool:
    """Return whether the process has the mark. False if it has ended, or if it belongs to another user and cannot be read."""
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _kill(pid: int, mark: bytes) -> None:
    """Kill the process and wait until it has ended. Uses a descriptor, because another process may have reused its number."""
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if _bears(pid, mark):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                ended = select.poll()
                ended.register(descriptor, select.POLLIN)
                ended.poll(_PATIENCE * 1000)
        finally:
            os.close(descriptor)
