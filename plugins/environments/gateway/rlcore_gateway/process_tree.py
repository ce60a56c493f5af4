"""Ends a process with everything that it started. Children that left its session are found by a mark in their environment.

A child can remove the mark. A process that runs programs of others therefore becomes the parent of their orphans, too (``Orphans``).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator

import psutil

from rlcore.api import InfrastructureError

__all__ = ["MARK", "Orphans", "kill_tree", "new_mark"]

MARK = "RLCORE_EPISODE_WORKER"
"""The environment variable with the marks of a process and of those above it."""
_PATIENCE = 5.0  # seconds: a killed process takes a moment to end, and may have started others before
_PR_SET_CHILD_SUBREAPER = 36


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


class Orphans:
    """Ends what the programs of this process leave behind. A program is known by its mark, and must lead a session of its own.

    While a program runs, the kernel gives orphans below this process to this process, as its children. What else this process starts
    meanwhile must stay in its session. Only Linux can do that; on other systems, nothing is done here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: dict[str, int] = {}  # mark -> process, 0 before it has started
        self._others: set[psutil.Process] | None = None  # earlier children; None: orphans are not given to this process

    def expect(self, mark: str) -> None:
        """Do what is needed before a program starts. ``end`` must follow."""
        with self._lock:
            if self._others is None and sys.platform == "linux":
                self._others = set(psutil.Process().children())
                _adopt(True)
            self._live[mark] = 0

    def started(self, mark: str, pid: int) -> None:
        """Tell the process of a program."""
        with self._lock:
            self._live[mark] = pid

    def reap(self) -> None:
        """Forget orphans that ended by themselves. Until then they count for the limit of processes."""
        with self._lock, contextlib.suppress(ChildProcessError, psutil.Error):
            while self._certain and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if self._own(psutil.Process(ended.si_pid)):
                    return
                os.waitpid(ended.si_pid, os.WNOHANG)

    def end(self, mark: str) -> None:
        """Kill the orphans of a program, which has ended. Those of programs that still run stay.

        :raises InfrastructureError: some are still there after 5 seconds.
        """
        with self._lock:
            del self._live[mark]
        limit = time.monotonic() + _PATIENCE
        while (found := self._look()) or found is None:
            if time.monotonic() > limit:
                raise InfrastructureError(f"processes that a program left behind did not end within {_PATIENCE:g} s; {(found or [''])[0]}")
            for act in (psutil.Process.suspend, psutil.Process.kill):  # stopped first, so that none can start others while some are killed
                for process in found or ():
                    with contextlib.suppress(psutil.Error, OSError):
                        act(process)
            time.sleep(0.001)

    @property
    def _certain(self) -> bool:
        """Whether orphans are children of this process, and no child is a program whose start has not been told."""
        return self._others is not None and 0 not in self._live.values()

    def _look(self) -> list[psutil.Process] | None:
        """Return the orphans, with what is below them, None if they are not certain. Without any, and without a program, take no more.

        An orphan that ended is reaped, and returned too: it may have started another one since the list of processes was read.
        """
        with self._lock:
            if self._others is None:
                return []
            if not self._certain:
                return None
            found = [child for child in psutil.Process().children() if not self._own(child) and not self._of_live(child)]
            for child in found:
                os.waitpid(child.pid, os.WNOHANG)
            if not found and not self._live:
                self._others = None
                _adopt(False)
        return [process for orphan in found for process in (orphan, *_below(orphan))]

    def _own(self, child: psutil.Process) -> bool:
        """Return whether this process started a child. No program can enter the session of this process."""
        try:
            return child.pid in self._live.values() or child in (self._others or ()) or os.getsid(child.pid) == os.getsid(0)
        except ProcessLookupError:  # somebody waited for it
            return True

    def _of_live(self, child: psutil.Process) -> bool:
        """Return whether an orphan is of a program that runs. No other program can enter its session."""
        try:
            return os.getsid(child.pid) in self._live.values() or any(mark in child.environ().get(MARK, "") for mark in self._live)
        except (psutil.Error, OSError):  # it ended, or hides its environment
            return False


def _adopt(on: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def _below(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return list(process.children(recursive=True))
    return []
