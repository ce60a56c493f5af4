"""What is asked of a sandbox, what it answers, and what a sandbox is. Knows no process and no operating system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Job", "Level", "Limit", "Limits", "Ran", "Sandbox"]

_MIB = 1 << 20


class Level(StrEnum):
    """How a program is walled in. What each level promises: docs/sandbox.md."""

    NAMESPACES = "namespaces"
    """bubblewrap: fresh user, pid, mount, ipc, net and uts namespaces for every run, seccomp, resource limits."""
    LANDLOCK = "landlock"
    """Landlock and seccomp, resource limits: where namespaces are not to be had, as in most containers."""
    REMOTE = "remote"
    """Another machine's business."""
    NONE = "none"
    """A process with resource limits and no walls. Only where the user asks for it."""


class Limit(StrEnum):
    """Which limit a program ran into."""

    CPU = "cpu"
    WALL = "wall"
    MEMORY = "memory"
    OUTPUT = "output"
    DISK = "disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run may use. ``cpu_seconds`` and ``memory_bytes`` hold for a process (memory for the whole tree, too, as far as resident);
    ``output_bytes`` for standard output, standard error being cut, never a reason to stop; ``disk_bytes`` and ``files`` for the private
    folder; ``processes`` counts threads too (level landlock: threads only)."""

    cpu_seconds: float = 5.0
    wall_seconds: float = 10.0
    memory_bytes: int = 1024 * _MIB
    output_bytes: int = 4 * _MIB
    disk_bytes: int = 64 * _MIB
    files: int = 1024
    processes: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run: a Python program (``source``, as text or as the bytes of a file) or a command (``argv``, an absolute path first), exactly
    one of the two. ``files`` lie in the working folder, by relative path, before it starts.

    >>> Job(source="print(sum(map(int, input().split())))", stdin=b"1 2\\n")
    >>> Job(argv=("/usr/bin/awk", "{print $1 + $2}"), stdin=b"1 2\\n")
    """

    source: str | bytes | None = None
    argv: tuple[str, ...] = ()
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if (self.source is None) == (not self.argv):
            raise ValueError("a job has either a Python source or an argv, and not both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a run. One of ``exit_code`` and ``signal`` is None; both are where the sandbox ended it (``limit`` says why).

    ``stdout``: at most ``output_bytes``; ``stderr``: the last 4 KiB. ``cpu_seconds`` of the program and the children it waited for;
    ``memory_bytes``: resident, of the largest process.
    """

    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    limit: Limit | None = None
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0

    @property
    def ok(self) -> bool:
        """True where the program ended by itself with exit code 0, within its limits."""
        return self.exit_code == 0 and self.limit is None


class Sandbox(ABC):
    """Runs one program at a time, walled in. A worker process has one; ``run`` may be called from any thread, calls wait for each other.

    A backend for programs that run elsewhere implements ``run`` and ``close`` and is named by its path in ``SandboxOptions.backend``; it is
    built as ``target(options)`` with the mapping ``SandboxOptions.backend_options``.
    """

    level: Level

    @abstractmethod
    def run(self, job: Job) -> Ran:
        """Run it to its end or its first limit; nothing of it is left afterwards.

        :raises SandboxError: the sandbox itself failed, twice; says nothing about the program.
        """

    @abstractmethod
    def describe(self) -> str:
        """One line for a person: level, and what gives it."""

    @abstractmethod
    def close(self) -> None:
        """Stop everything; may be called twice."""

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
