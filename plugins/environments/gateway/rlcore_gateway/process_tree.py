"""Ends a process with everything that it started. Children that left its session are found by a mark in their environment."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator

import psutil

__all__ = ["MARK", "kill_tree", "new_mark"]

MARK = "RLCORE_EPISODE_WORKER"
"""The environment variable with the marks of a process and of those above it."""
_PATIENCE = 5.0  # seconds: a killed process takes a moment to end, and may have started others before


def new_mark() -> str:
    """Return the mark for one more process."""
    return f"{os.environ.get(MARK, '')}/{secrets.token_hex(8)}"


def kill_tree(pid: int, mark: str) -> None:
    """Kill a leader of a session, its descendants, and all processes with the mark. Wait until they have ended."""
    limit = time.monotonic() + _PATIENCE
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    while (found := list(_family(pid, mark))) and time.monotonic() < limit:
        for process in found:
            with contextlib.suppress(psutil.Error, OSError):
                process.kill()
        time.sleep(0.01)  # psutil must not wait: it would take the exit code of a child from its owner


def _family(pid: int, mark: str) -> Iterator[psutil.Process]:
    for number in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):  # psutil raises FileNotFoundError if a process ends while it looks
            process = psutil.Process(number)
            if process.status() != psutil.STATUS_ZOMBIE and (process.pid == pid or mark in process.environ().get(MARK, "")):
                yield process
