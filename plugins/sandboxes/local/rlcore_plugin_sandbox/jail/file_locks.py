"""File locks of a session: ``flock``, on files that only this session has.

The filter of the session hands each call to the supervisor. It duplicates the caller's descriptor, so that its lock is that of the caller,
and locks the file if it is in the session's own file system. On a file that other programs can open, a lock would reach them: there the
call does not exist. What is checked and what is locked is one duplicate, whatever the caller does with its descriptors meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import os
import struct

from rlcore_plugin_sandbox.jail.syscalls import machine, number

__all__ = ["FileLocks"]

_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # SECCOMP_IOCTL_NOTIF_…
_CALL, _ANSWER = struct.Struct("=QII iIQ 6Q"), struct.Struct("=QqiI")  # struct seccomp_notif, seccomp_notif_resp
_PAUSE = 0.02  # seconds between two looks at a lock that another process has
_OPERATIONS = fcntl.LOCK_SH | fcntl.LOCK_EX | fcntl.LOCK_UN
_library = ctypes.CDLL(None, use_errno=True)


class FileLocks:
    """Answers the calls of ``flock`` that ``notifier`` tells. ``device``: that of the session's own file system."""

    def __init__(self, notifier: int, device: int) -> None:
        self._notifier, self._device = notifier, device
        self._waiting: dict[int, tuple[int, int]] = {}  # call -> duplicate, operation
        self._timer: asyncio.TimerHandle | None = None

    def answer_next(self) -> None:
        """Answer one call, or let it wait for its lock. The notifier must be readable."""
        told = bytearray(_CALL.size)
        try:
            fcntl.ioctl(self._notifier, _RECEIVE, told)
        except OSError:  # the caller was killed, or interrupted by a signal
            return
        call, thread, _, _, _, _, descriptor, operation, *_ = _CALL.unpack(told)
        try:
            duplicate = _duplicated(thread, descriptor & 0xFFFFFFFF)
        except OSError as error:
            self._answer(call, error.errno if error.errno == errno.EBADF else errno.ENOSYS)
            return
        if os.fstat(duplicate).st_dev != self._device:
            os.close(duplicate)
            self._answer(call, errno.ENOSYS)
            return
        self._waiting[call] = duplicate, operation & 0xFFFFFFFF
        self._try(call)
        self._look_again()

    def _look_again(self) -> None:
        if self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE, self._look)

    def _look(self) -> None:
        self._timer = None
        for call in list(self._waiting):
            self._try(call)
        self._look_again()

    def _try(self, call: int) -> None:
        """Answer a call unless it has to wait. A caller that no longer waits gets no lock."""
        duplicate, operation = self._waiting[call]
        found = 0
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._notifier, _IS_VALID, struct.pack("=Q", call))
            try:
                fcntl.flock(duplicate, (operation & _OPERATIONS) | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if not operation & fcntl.LOCK_NB:
                    return
                found = error.errno or errno.EIO
            except OSError as error:
                found = error.errno or errno.EIO
        del self._waiting[call]
        os.close(duplicate)
        self._answer(call, found)

    def _answer(self, call: int, number_of_error: int) -> None:
        with contextlib.suppress(OSError):  # the caller no longer waits
            fcntl.ioctl(self._notifier, _SEND, _ANSWER.pack(call, 0, -number_of_error, 0))


def _duplicated(thread: int, descriptor: int) -> int:
    """Return a duplicate of a descriptor of the process with a thread. Raise OSError if there is none."""
    with open(f"/proc/{thread}/status", encoding="ascii", errors="replace") as status:  # noqa: PTH123 - pathlib costs too much here
        leader = next(int(line.split()[1]) for line in status if line.startswith("Tgid:"))
    process = os.pidfd_open(leader)
    try:
        duplicate = int(_library.syscall(number("pidfd_getfd", machine()), process, descriptor, 0))
    finally:
        os.close(process)
    if duplicate < 0:
        raise OSError(ctypes.get_errno(), "no duplicate")
    return duplicate
