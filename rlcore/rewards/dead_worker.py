"""What a worker leaves behind: processes that it, or its reward, started and that left its group, such as a daemon that forked twice.

They are known by a mark in their environment, which every process inherits, whatever it did to its parents, its session and its group.
One that was started with an environment of its own is not found.
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
_PATIENCE = 1.0  # seconds: what is killed takes a moment to go, and may have forked before


def new_mark() -> str:
    """The value for another worker; one inside a worker bears the marks of both."""
    return f"{os.environ.get(MARK, '')}/{secrets.token_hex(8)}"


def kill_orphans(mark: str) -> int:
    """Kill every process with that mark until there is none; returns how many were found. 0 where the system has no /proc."""
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
    """False for one that has ended, and for one of another user that cannot be asked."""
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _kill(pid: int, mark: bytes) -> None:
    """By a descriptor that stands for the process, since its number may be another one's by now; and wait until it has ended."""
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
