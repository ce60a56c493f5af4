"""The watch over one run from outside: its end, its wall clock, and the total use of its processes. It decides which limit ended the
run."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["SOCKET", "Run", "Use", "everyone", "lives", "one", "to_look_at"]

_TICK = 0.05
_FIRST_LOOK = 0.1
_TELLING = 1.0
_CLOCK = os.sysconf("SC_CLK_TCK")


class Use:
    """The present use of all processes of a run: seconds of CPU, bytes of memory, threads, and the limit that they exceed, if any."""

    def __init__(self) -> None:
        self.cpu = 0.0
        self.memory = self.tasks = 0
        self.over: str | None = None  # not a dataclass, whose import would cost every session 10 ms


class Run:
    """One run as the zygote sees it. Call ``of`` with the process, ``wait``, ``end``, ``cleaned`` (if there is a folder) and ``answer``, in
    this order."""

    def __init__(self, limits: Mapping[str, Any], channel: socket.socket, *, walled: bool) -> None:
        self._limits, self._channel, self._walled = limits, channel, walled
        self._started = self._told = time.monotonic()
        self.flag = mmap.mmap(-1, mmap.PAGESIZE)
        """One shared byte, set if the program raised MemoryError."""
        self._ready, self.is_ready = os.pipe()
        self._pid, self._ended = 0, -1
        self._use: Callable[[], Use] = Use
        self._stopped: str | None = None
        self._seen = Use()
        self._answer: dict[str, Any] = {}

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._ready, self.is_ready, self._ended):
            if descriptor >= 0:
                os.close(descriptor)
        self.flag.close()

    def of(self, pid: int, use: Callable[[], Use]) -> None:
        """Set the process of the run, and the function that returns its use."""
        self._pid, self._use = pid, use
        self._ended = os.pidfd_open(pid)

    def wait(self) -> None:
        """Wait until the program ends, it exceeds a limit, the owner stops it, or the owner ends."""
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        poll.register(self._channel.fileno(), select.POLLIN)
        last = self._started + self._limits["wall"]
        look = min(self._started + _FIRST_LOOK, last)
        while self._stopped is None:
            ready = {descriptor for descriptor, _ in poll.poll(max(0.0, (look - time.monotonic()) * 1000))}
            if self._ended in ready:
                return
            if self._channel.fileno() in ready:
                self._stopped = "output" if self._channel.recv(64) else "gone"
            elif (now := time.monotonic()) >= look:
                self._seen = self._use()
                self._stopped = self._exceeded() or ("wall" if now >= last else None)
                look = min(now + _TICK, last)

    def _exceeded(self) -> str | None:
        if self._seen.over:
            return self._seen.over
        if self._seen.cpu > self._limits["cpu"]:
            return "cpu"
        return "memory" if self._seen.memory > self._limits["memory"] else None

    def end(self) -> None:
        """Kill the remaining process and record its status."""
        if self._pid == 0:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        _, status, usage = os.wait4(self._pid, 0)
        ran = bool(select.select([self._ready], [], [], 0)[0])
        cpu, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        code = os.waitstatus_to_exitcode(status)
        self._answer = {"exit": code if code >= 0 else None, "signal": -code if code < 0 else None, "limit": self._limit(code, cpu)}
        self._answer |= {
            "wall": time.monotonic() - self._started,
            "cpu": max(cpu, self._seen.cpu),
            "memory": max(memory, self._seen.memory),
        }
        if not ran:  # no program has run, so there is no verdict, whatever the reason
            self._answer = {"error": "the jail could not be built" if self._stopped is None else "the jail was not built in time"}
        elif self._stopped is not None:
            self._answer |= {"exit": None, "signal": None, "limit": self._stopped}
        elif self._walled and code == -signal.SIGKILL and self._answer["limit"] is None:
            # Process 1 of its namespace, and a process behind the filter, cannot kill themselves with SIGKILL.
            self._answer = {"error": "the program was killed from outside (by the kernel, because memory ran out?)"}

    def _limit(self, code: int, cpu: float) -> str | None:
        """Return the limit that caused the end of a program that ended by itself; None if there is none."""
        if cpu >= self._limits["cpu"] or code == -signal.SIGXCPU:
            return "cpu"
        if self.flag[0] and code != 0:
            return "memory"
        return "disk" if code == -signal.SIGXFSZ else None

    def still_cleaning(self) -> None:
        """Tell the owner once a second that files are still being removed, because it does not wait for a silent zygote."""
        if (now := time.monotonic()) >= self._told + _TELLING:
            self._told = now
            self._channel.send(b'{"cleaning": true}')

    def cleaned(self, *, too_much: bool) -> None:
        """Charge the program for the files that it left: the time of their removal, and the limit if there were ``too_much``."""
        if "error" in self._answer:
            return
        self._answer["wall"] = time.monotonic() - self._started
        if too_much and self._stopped is None:
            self._answer |= {"exit": None, "signal": None, "limit": "disk"}

    def answer(self) -> dict[str, Any]:
        """Return the answer for the owner: how the program ended."""
        return self._answer


def _socket_bytes() -> int:
    one_end, other = socket.socketpair()
    with one_end, other:
        return 2 * one_end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


SOCKET = _socket_bytes()
"""The bytes that a socket may hold in the kernel, which are charged to no process: the default buffer size of this machine, and one more
message of at most the same size. The filter keeps programs from asking for more."""


def everyone() -> Use:
    """Return the use of all processes of the run. In bubblewrap's /proc these are all processes except the zygote and bubblewrap."""
    use = Use()
    sockets, mine = 0, os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - importing pathlib here costs too much
        if name.isdigit() and int(name) not in (1, mine):
            with contextlib.suppress(OSError, ValueError, IndexError):
                folder = _add(use, name)
                sockets = max(sockets, _sockets(folder))
    use.memory += sockets * SOCKET
    return use


def one(pid: int) -> Use:
    """Return the use of one process, without its memory in the kernel."""
    use = Use()
    with contextlib.suppress(OSError, ValueError, IndexError):
        _add(use, str(pid))
    return use


def to_look_at(pid: int | str) -> str:
    """Return the folder below /proc with the facts about a process. If its first thread has ended, that folder no longer shows the memory
    and descriptors of the other threads. Then return the folder of one of these."""
    folder = f"/proc/{pid}"
    if lives(folder):
        return folder
    threads = [f"{folder}/task/{thread}" for thread in os.listdir(f"{folder}/task")]  # noqa: PTH208
    return next(filter(lives, threads), folder)


def lives(folder: str) -> bool:
    """Return whether the process or thread of a folder below /proc still has its memory. Without it, it is about to end, and belongs to
    root."""
    with contextlib.suppress(OSError, IndexError):
        fields = _stat(folder)
        return fields[0] not in (b"Z", b"X") and fields[20] != b"0"
    return False


def _sockets(folder: str) -> int:
    """Return the number of sockets in its network namespace, whichever process holds them."""
    with open(f"{folder}/net/sockstat", "rb") as file:  # noqa: PTH123
        return int(file.readline().split()[2])


def _stat(folder: str) -> list[bytes]:
    """Return the fields after the name, the state first."""
    with open(f"{folder}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b")")[2].split()


def _add(use: Use, name: str) -> str:
    """Add the use of a process; return the folder with the facts about it."""
    folder, fields = f"/proc/{name}", _stat(f"/proc/{name}")
    use.cpu += sum(int(field) for field in fields[11:15]) / _CLOCK
    use.tasks += int(fields[17])
    if fields[0] == b"Z" and int(fields[17]) > 1:
        folder = to_look_at(name)
    use.memory += _memory(folder)
    return folder


def _memory(folder: str) -> int:
    """Return the bytes that are resident, swapped out, or used by page tables; a page of a gigabyte takes two pages of page tables."""
    with open(f"{folder}/status", "rb") as file:  # noqa: PTH123
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith((b"VmRSS:", b"VmSwap:", b"VmPTE:")))
