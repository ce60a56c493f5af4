"""Watches one run from outside: its end, its wall clock, what its processes use together. Decides which limit ended it."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["SOCKET", "Run", "Use", "everyone", "lives", "one", "to_look_at"]

_TICK = 0.05
_FIRST_LOOK = 0.1
_TELLING = 1.0
_CLOCK = os.sysconf("SC_CLK_TCK")


@dataclass
class Use:
    """What all processes of a run use now: seconds of CPU, bytes of memory, threads, and the limit that they exceed, if any."""

    cpu: float = 0.0
    memory: int = 0
    over: str | None = None
    tasks: int = 0


class Run:
    """One run from the zygote's side: ``of`` the process, ``wait``, ``end``, ``cleaned`` (of a folder), ``answer``, in this order."""

    def __init__(self, limits: Mapping[str, Any], channel: socket.socket, *, walled: bool) -> None:
        self._limits, self._channel, self._walled = limits, channel, walled
        self._started = self._told = time.monotonic()
        self.flag = mmap.mmap(-1, mmap.PAGESIZE)
        """One shared byte: the program met MemoryError."""
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
        """The process that it is, and what tells its use."""
        self._pid, self._use = pid, use
        self._ended = os.pidfd_open(pid)

    def wait(self) -> None:
        """Until the program's end, its first limit, the host's word, or the host's end."""
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
        """Kill what is left and take the process' status."""
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
        if not ran:  # no program has run, so there is no verdict, whatever stopped it
            self._answer = {"error": "the jail could not be built" if self._stopped is None else "the jail was not built in time"}
        elif self._stopped is not None:
            self._answer |= {"exit": None, "signal": None, "limit": self._stopped}
        elif self._walled and code == -signal.SIGKILL and self._answer["limit"] is None:
            # Process 1 of its namespace, and one that the filter holds, cannot do that to themselves.
            self._answer = {"error": "the program was killed from outside (by the kernel, for want of memory?)"}

    def _limit(self, code: int, cpu: float) -> str | None:
        """The limit behind the end of a program that ended by itself."""
        if cpu >= self._limits["cpu"] or code == -signal.SIGXCPU:
            return "cpu"
        if self.flag[0] and code != 0:
            return "memory"
        return "disk" if code == -signal.SIGXFSZ else None

    def still_cleaning(self) -> None:
        """Tell the host once a second that what the program left is being removed: it waits for no zygote that says nothing."""
        if (now := time.monotonic()) >= self._told + _TELLING:
            self._told = now
            self._channel.send(b'{"cleaning": true}')

    def cleaned(self, *, too_much: bool) -> None:
        """Charge the program for what it left: the time of removing it, and the limit if it was ``too_much``."""
        if "error" in self._answer:
            return
        self._answer["wall"] = time.monotonic() - self._started
        if too_much and self._stopped is None:
            self._answer |= {"exit": None, "signal": None, "limit": "disk"}

    def answer(self) -> dict[str, Any]:
        """Return how the program ended, as the host is told."""
        return self._answer


def _socket_bytes() -> int:
    one_end, other = socket.socketpair()
    with one_end, other:
        return 2 * one_end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


SOCKET = _socket_bytes()
"""Bytes that a socket may hold in the kernel, for which no process is charged: what this machine gives a new one, and one message beyond it
of the same size at most. The filter keeps programs from asking for more."""


def everyone() -> Use:
    """All processes of the run: in bubblewrap's /proc these are all but the zygote and bubblewrap."""
    use = Use()
    sockets, mine = 0, os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is not worth its import in here
        if name.isdigit() and int(name) not in (1, mine):
            with contextlib.suppress(OSError, ValueError, IndexError):
                folder = _add(use, name)
                sockets = max(sockets, _sockets(folder))
    use.memory += sockets * SOCKET
    return use


def one(pid: int) -> Use:
    """One process, without what it holds in the kernel."""
    use = Use()
    with contextlib.suppress(OSError, ValueError, IndexError):
        _add(use, str(pid))
    return use


def to_look_at(pid: int | str) -> str:
    """The folder below /proc that tells of a process: its own, or that of a thread if the first one has ended, and with it what is told
    of memory and descriptors that the others still have."""
    folder = f"/proc/{pid}"
    if lives(folder):
        return folder
    threads = [f"{folder}/task/{thread}" for thread in os.listdir(f"{folder}/task")]  # noqa: PTH208
    return next(filter(lives, threads), folder)


def lives(folder: str) -> bool:
    """Whether the process or thread of a folder below /proc has its memory still: without it, it is about to end, and belongs to root."""
    with contextlib.suppress(OSError, IndexError):
        fields = _stat(folder)
        return fields[0] not in (b"Z", b"X") and fields[20] != b"0"
    return False


def _sockets(folder: str) -> int:
    """How many exist in its network namespace, whoever holds them."""
    with open(f"{folder}/net/sockstat", "rb") as file:  # noqa: PTH123
        return int(file.readline().split()[2])


def _stat(folder: str) -> list[bytes]:
    """The fields after the name, the state first."""
    with open(f"{folder}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b")")[2].split()


def _add(use: Use, name: str) -> str:
    """Add a process; returns the folder that tells of it."""
    folder, fields = f"/proc/{name}", _stat(f"/proc/{name}")
    use.cpu += sum(int(field) for field in fields[11:15]) / _CLOCK
    use.tasks += int(fields[17])
    if fields[0] == b"Z" and int(fields[17]) > 1:
        folder = to_look_at(name)
    use.memory += _memory(folder)
    return folder


def _memory(folder: str) -> int:
    """Bytes that are resident, that the machine has swapped out, or that page tables take: a page of a gigabyte takes two pages of them."""
    with open(f"{folder}/status", "rb") as file:  # noqa: PTH123
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith((b"VmRSS:", b"VmSwap:", b"VmPTE:")))
