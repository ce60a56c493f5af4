"""One process writes a run at a time: a lock on ``RUN/.lock`` that its holder cannot leave behind, however it ends."""

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
"""The file system has no locks: two processes are then kept apart by nobody, as before a run had a lock."""


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the lock of a run folder that is there; a second time in the same thread is free. UsageError, which names the holder, if another
    process (or thread) has it."""
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
            _clear(handle)  # of one that was killed
            yield
        finally:
            _clear(handle)
            del _held[run]
    finally:
        os.close(handle)  # which frees the lock


def sign(run: Path) -> None:
    """Write down who holds the lock, for the sentence that others get: once the run is written to, for a refusal writes nothing."""
    _, handle = _held[run.resolve()]
    with suppress(OSError):  # a full disk is told where it matters
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def last_writer(run: Path) -> str:
    """Who signed the lock and has not given it back: it writes the run, or was killed; "" if that is nobody. A look takes no lock, so
    that it keeps no writer away."""
    try:
        return (run / ".lock").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _clear(handle: int) -> None:
    if os.fstat(handle).st_size:  # else nothing is written
        with suppress(OSError):
            os.ftruncate(handle, 0)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _NO_LOCKS
    return True
