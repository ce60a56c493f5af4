"""Processes, listening ports and shared memory that a part has left on the machine, read from /proc and /dev/shm: Linux alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Leftovers"]

_PROC, _SHARED = Path("/proc"), Path("/dev/shm")
_LISTENS = "0A"
_SERVES_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Processes that Python starts once, and that live as long as the program."""


@dataclass
class Leftovers:
    """The changes since ``Leftovers()`` was made. Call ``look`` while the part works, so that its processes and their memory are known."""

    ports: frozenset[str] = field(default_factory=lambda: _ports(_family()))
    shared: frozenset[str] = field(default_factory=lambda: _shared_memory())
    before: frozenset[tuple[int, int]] = field(default_factory=lambda: frozenset(_family().items()))
    seen: set[tuple[int, int]] = field(default_factory=set)
    used: set[str] = field(default_factory=set)

    @staticmethod
    def known() -> bool:
        """Return whether this machine has /proc."""
        return (_PROC / "self" / "stat").exists()

    def look(self) -> None:
        """Note the processes that there are now, and the shared memory that they use."""
        family = _family()
        self.seen |= set(family.items()) - self.before
        self.used |= {name for pid in family for name in _memory_of(pid)} - self.shared

    def found(self) -> list[str]:
        """Return one description for each thing that is still there."""
        self.look()
        alive = {pid: started for pid, started in self.seen if _started(pid) == started and not _serves_python(pid)}
        open_ports = _ports({**_family(), **alive}) - self.ports
        return [
            *(f"process {pid} ({_command(pid)})" for pid in sorted(alive)),
            *(f"listening port {port}" for port in sorted(open_ports)),
            *(f"shared memory /dev/shm/{name}" for name in sorted(self._left_memory(alive))),
        ]

    def _left_memory(self, alive: dict[int, int]) -> Iterator[str]:
        """Yield the new entries that our processes use or used, and no other process uses. Other programs of the machine may leave entries
        too."""
        others = {int(folder.name) for folder in _PROC.iterdir() if folder.name.isdigit()} - {*_family(), *alive}
        if left := self.used & _shared_memory():
            yield from left.difference(*map(_memory_of, others))


def _family() -> dict[int, int]:
    """Return this process and its descendants: pid -> start time in ticks."""
    parents: dict[int, tuple[int, int]] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (fields := _fields(int(folder.name))):
            parents[int(folder.name)] = (int(fields[1]), int(fields[19]))
    family, last = {os.getpid()}, 0
    while len(family) > last:
        last = len(family)
        family |= {pid for pid, (parent, _) in parents.items() if parent in family}
    return {pid: parents[pid][1] for pid in family if pid in parents}


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; none for a process that has ended."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[:1] in (["Z"], ["X"]) else fields


def _started(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[19]) if fields else -1


def _command(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:100]
    except OSError:
        return ""


def _serves_python(pid: int) -> bool:
    command = _command(pid)
    return any(module in command for module in _SERVES_PYTHON)


def _ports(family: dict[int, int]) -> frozenset[str]:
    """Return the addresses on which one of these processes listens, as the kernel writes them."""
    sockets = {link for pid in family for link in _links(pid) if link.startswith("socket:")}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in (_PROC / "self" / "net" / table).read_text("utf-8").splitlines()[1:]:
            columns = line.split()
            if columns[3] == _LISTENS and f"socket:[{columns[9]}]" in sockets:
                found.add(f"{int(columns[1].rpartition(':')[2], 16)} (socket {columns[9]})")
    return frozenset(found)


def _links(pid: int) -> Iterator[str]:
    """Yield the targets of the open files of a process."""
    try:
        for entry in (_PROC / str(pid) / "fd").iterdir():
            try:
                yield str(entry.readlink())
            except OSError:
                continue
    except OSError:
        return


def _shared_memory() -> frozenset[str]:
    return frozenset(entry.name for entry in _SHARED.iterdir()) if _SHARED.is_dir() else frozenset()


def _memory_of(pid: int) -> set[str]:
    """Return the names of the entries of /dev/shm that a process maps or holds open."""
    try:
        maps = (_PROC / str(pid) / "maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return set()
    inside = f"{_SHARED}/"
    return {path.partition(inside)[2] for path in (*maps, *_links(pid)) if inside in path and not path.endswith(" (deleted)")}
