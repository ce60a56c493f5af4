"""File locks of a session: ``flock`` and F_GETLK, on files that only this session has.

The filter of the session hands each call to the supervisor. It duplicates the caller's descriptor, so that its lock is that of the caller,
and locks the file if it is in the session's own file system. On a file that other programs can open, a lock would reach them: there the
call does not exist. What is checked and what is locked is one duplicate, whatever the caller does with its descriptors meanwhile.

Record locks belong to a process, so the kernel sets them (F_SETLK). On shared files, a session can set only locks for reading, which
exclude nobody and which nobody sees without F_GETLK. Devices are the exception, because all sessions may write on them: there the
supervisor has a lock for reading, so that no session can get one for writing.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from typing import Any

from rlcore_plugin_sandbox.jail.syscalls import machine, number

__all__ = ["PAUSE", "FileLocks", "keep_devices_shared"]

PAUSE = 0.02
"""Seconds between two looks at a lock that another process has."""
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # SECCOMP_IOCTL_NOTIF_…
_CALL, _ANSWER = struct.Struct("=QII iIQ 6Q"), struct.Struct("=QqiI")  # struct seccomp_notif, seccomp_notif_resp
_RECORD = struct.Struct("@hhqqi4x")  # struct flock: type, whence, start, length, process
_F_OFD_SETLK, _END = 37, (1 << 63) - 1
_QUERIES = 100  # a process may have any number of locks of its own between it and that of another process
_ADDRESSES = (1 << 64) - 1
_DEVICES = ("null", "full", "random", "urandom")
_OPERATIONS = fcntl.LOCK_SH | fcntl.LOCK_EX | fcntl.LOCK_UN
_library = ctypes.CDLL(None, use_errno=True)


class FileLocks:
    """Answers the calls of ``flock`` and F_GETLK that ``notifier`` tells. ``device``: that of the session's own file system."""

    def __init__(self, notifier: int, device: int) -> None:
        self._notifier, self._device = notifier, device
        self._waiting: dict[int, tuple[int, int]] = {}  # call -> duplicate, operation

    @property
    def waits(self) -> bool:
        """Whether a call waits for a lock, so that ``look`` is due every ``PAUSE`` seconds."""
        return bool(self._waiting)

    def answer_next(self) -> None:
        """Answer one call, or let it wait for its lock. The notifier must be readable."""
        told = bytearray(_CALL.size)
        try:
            fcntl.ioctl(self._notifier, _RECEIVE, told)
        except OSError:  # the caller was killed, or interrupted by a signal
            return
        call, thread, _, kind, _, _, descriptor, operation, address, *_ = _CALL.unpack(told)
        try:
            process = _process(thread)
            duplicate = _duplicated(process, descriptor & 0xFFFFFFFF)
        except OSError as error:
            self._answer(call, error.errno if error.errno == errno.EBADF else errno.ENOSYS)
            return
        if os.fstat(duplicate).st_dev != self._device:
            os.close(duplicate)
            self._answer(call, errno.ENOSYS)
            return
        if kind == number("fcntl", machine()):
            self._answer(call, self._told_record(call, process, duplicate, address))
            os.close(duplicate)
            return
        self._waiting[call] = duplicate, operation & 0xFFFFFFFF
        self._try(call)

    def _told_record(self, call: int, process: int, duplicate: int, address: int) -> int:
        """Write the lock that excludes the one at an address of the caller, as F_GETLK does; return the number of the error."""
        record = ctypes.create_string_buffer(_RECORD.size)
        try:
            _copy(_library.process_vm_readv, process, record, address)
            fcntl.ioctl(self._notifier, _IS_VALID, struct.pack("=Q", call))  # the process was not another one meanwhile
            record.raw = _excluding(duplicate, record.raw, process)
            _copy(_library.process_vm_writev, process, record, address)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def look(self) -> None:
        """Answer the waiting calls whose locks are free now."""
        for call in list(self._waiting):
            self._try(call)

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


def keep_devices_shared() -> None:
    """Lock the devices of a session for reading, as long as this process lives."""
    for name in _DEVICES:
        with contextlib.suppress(OSError):  # there is no such device
            device = os.open(f"/dev/{name}", os.O_RDONLY)  # stays open
            fcntl.fcntl(device, _F_OFD_SETLK, _RECORD.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))


def _process(thread: int) -> int:
    with open(f"/proc/{thread}/status", encoding="ascii", errors="replace") as status:  # noqa: PTH123 - pathlib costs too much here
        return next(int(line.split()[1]) for line in status if line.startswith("Tgid:"))


def _duplicated(process: int, descriptor: int) -> int:
    """Return a duplicate of a descriptor of a process. Raise OSError if there is none."""
    handle = os.pidfd_open(process)
    try:
        duplicate = int(_library.syscall(number("pidfd_getfd", machine()), handle, descriptor, 0))
    finally:
        os.close(handle)
    if duplicate < 0:
        raise OSError(ctypes.get_errno(), "no duplicate")
    return duplicate


def _copy(call: Any, process: int, record: ctypes.Array[ctypes.c_char], address: int) -> None:
    ours, theirs = (struct.pack("@PN", place, _RECORD.size) for place in (ctypes.addressof(record), address & _ADDRESSES))
    if call(process, ours, ctypes.c_ulong(1), theirs, ctypes.c_ulong(1), ctypes.c_ulong(0)) != _RECORD.size:
        raise OSError(errno.EFAULT, "no such memory")


def _excluding(file: int, asked: bytes, process: int) -> bytes:
    """Return the first lock of another process that excludes the one asked for, or the same with F_UNLCK."""
    kind, whence, start, length, _ = _RECORD.unpack(asked)
    if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
        raise OSError(errno.EINVAL, "no such place")
    start += {os.SEEK_SET: 0, os.SEEK_CUR: os.lseek(file, 0, os.SEEK_CUR), os.SEEK_END: os.fstat(file).st_size}[whence]
    start, length = (start + length, -length) if length < 0 else (start, length)
    last = start + length - 1 if length else _END
    for _ in range(_QUERIES):
        found = _query(file, kind, start, last)
        if _is_of_another(found, process):
            return found
        _, _, begin, size, _ = record = _RECORD.unpack(found)
        if record[0] == fcntl.F_UNLCK:
            break
        # The caller's own lock: the kernel's F_GETLK would not see it. Its own are sorted, so none of them is before this one.
        if begin > start and _is_of_another(before := _query(file, kind, start, begin - 1), process):
            return before
        start = begin + size
        if size == 0 or start > last:
            break
    else:
        raise OSError(errno.ENOLCK, "too many locks")
    return _RECORD.pack(fcntl.F_UNLCK, *_RECORD.unpack(asked)[1:])


def _query(file: int, kind: int, start: int, last: int) -> bytes:
    return fcntl.fcntl(file, fcntl.F_GETLK, _RECORD.pack(kind, os.SEEK_SET, start, 0 if last == _END else last - start + 1, 0))


def _is_of_another(record: bytes, process: int) -> bool:
    kind, _, _, _, owner = _RECORD.unpack(record)
    return bool(kind != fcntl.F_UNLCK and owner != process)
