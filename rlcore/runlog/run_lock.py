"""Only one process writes a run at a time. The lock on ``RUN/.lock`` ends with its holder, however the holder ends."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlcore.contracts.errors import ConfigError, UsageError, disk_full

__all__ = ["last_writer", "locked", "sign"]

_held: dict[Path, tuple[int, int]] = {}
"""Run -> (thread of this process that holds its lock, the open file)."""
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""The file system has no locks, so nothing keeps two processes apart."""


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the lock of an existing run folder. Taking it again in the same thread has no effect.

    Raises UsageError with the holder's name if another process or thread has it."""
    run = run.resolve()
    if run in _held and _held[run][0] == threading.get_ident():
        yield
        return
    try:
        handle = os.open(run / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigError(f"{run} cannot be written ({disk_full(error) or error.strerror}), and a run needs its folder") from None
    try:
        if run in _held or not _taken(handle):
            holder = os.pread(handle, 200, 0).decode(errors="replace").strip()
            raise UsageError(f"{run} is being written by {holder or 'another process'}: wait for it, or end it, then type this again")
        _held[run] = threading.get_ident(), handle
        try:
            _clear(handle)  # left by a killed holder
            yield
        finally:
            _clear(handle)
            del _held[run]
    finally:
        os.close(handle)  # this frees the lock


def sign(run: Path) -> None:
    """Record the holder of the lock, for the error message of other processes.

    Called once the run is written to, because a refused command writes nothing."""
    _, handle = _held[run.resolve()]
    with suppress(OSError):  # a full disk is reported by more important writes
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def last_writer(run: Path) -> str:
    """Return the process that signed the lock and has not released it, "" if there is none.

    It writes the run, or was killed. This takes no lock, so it does not block a writer."""
    try:
        return (run / ".lock").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _clear(handle: int) -> None:
    if os.fstat(handle).st_size:  # otherwise nothing needs to be written
        with suppress(OSError):
            os.ftruncate(handle, 0)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _NO_LOCKS
    return True
