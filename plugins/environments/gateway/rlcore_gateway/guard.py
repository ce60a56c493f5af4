"""The program that starts the gateway, and ends it with everything below it if the producer dies or closes the lifeline.

It is one small process that imports only psutil. Linux hands it every orphan below it, so none is left, not even a daemon.
Arguments: the descriptor of the lifeline, the producer's process id, descriptors for the command ("3,4"), the command.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main(arguments: list[str]) -> int:
    """Run the command until it or the producer ends. Return its exit code."""
    lifeline, parent, passed = int(arguments[0]), int(arguments[1]), [int(word) for word in arguments[2].split(",")]
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the kernel was asked
        return 0
    child = subprocess.Popen(arguments[3:], pass_fds=passed)
    for descriptor in passed:
        os.close(descriptor)
    while child.poll() is None:
        ready, _, _ = select.select([lifeline, ended], [], [])
        if lifeline in ready or (ended in ready and signal.SIGTERM in os.read(ended, 1024)):
            break
        _reap(child.pid)
    _kill_all(child)
    return child.wait()


def _reap(kept: int) -> None:
    """Wait for orphans that ended, so that they do not stay as zombies."""
    for pid in _children():
        if pid != kept:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


def _kill_all(command: subprocess.Popen[bytes]) -> None:
    """Kill children until there are none: those of a killed child become children of this process. Keep the exit code of the command."""
    limit = time.monotonic() + 10.0
    while (pids := _children()) and time.monotonic() < limit:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        command.wait()
        for pid in pids:
            if pid != command.pid:
                os.waitpid(pid, 0)


def _children() -> list[int]:
    return [child.pid for child in psutil.Process().children()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
