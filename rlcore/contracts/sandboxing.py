"""What is asked of a sandbox, what it answers, what a sandbox is, and what users set of it. Knows no process and no operating system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Job", "Level", "Limit", "Limits", "ProgramResult", "Sandbox", "SandboxOptions"]

_MIB = 1 << 20
_LEAST = {"memory_bytes": 64 * _MIB, "disk_bytes": 4096, "files": 16, "output_bytes": 0, "address_bytes": 0}  # what a jail itself needs
_MOST_SECONDS, _MOST = 86400.0, 1 << 50
_LONGEST_NAME, _LONGEST_PATH = 255, 3000  # bytes; file systems have the first one, the kernel takes little more than the second


class Level(StrEnum):
    """How a program is walled in."""

    NAMESPACES = "namespaces"
    """bubblewrap: fresh user, pid, mount, ipc, net and uts namespaces for every run, seccomp, resource limits."""
    LANDLOCK = "landlock"
    """Landlock and seccomp, resource limits: for machines that give no namespaces, such as most containers."""
    REMOTE = "remote"
    """The program runs on another machine, whose service walls it in."""
    NONE = "none"
    """A process with resource limits and no walls; given only to users who ask for it."""


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
    folder; ``processes`` counts threads too (level landlock: threads only). ``address_bytes``, where it is above ``memory_bytes``: what a
    process may reserve without using it, as Node and Java do; then only resident memory is held to ``memory_bytes``."""

    cpu_seconds: float = 5.0
    wall_seconds: float = 10.0
    memory_bytes: int = 1024 * _MIB
    output_bytes: int = 4 * _MIB
    disk_bytes: int = 64 * _MIB
    files: int = 1024
    processes: int = 64
    address_bytes: int = 0

    def __post_init__(self) -> None:
        for name in (limit.name for limit in fields(self)):
            value, seconds = getattr(self, name), name.endswith("_seconds")
            least, most = (0.01, _MOST_SECONDS) if seconds else (_LEAST.get(name, 1), _MOST)
            if isinstance(value, bool) or not isinstance(value, int | float if seconds else int) or not least <= value <= most:
                kind = "a number of seconds" if seconds else "a whole number"
                raise ValueError(f"the limit {name} is {value!r}; it must be {kind} from {least} to {most}")


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
        if not isinstance(self.source, str | bytes | None) or not isinstance(self.stdin, bytes):
            raise ValueError("a job's source is text or bytes, its stdin bytes")
        if isinstance(self.argv, str) or any(not isinstance(word, str) or "\0" in word or _bytes(word) is None for word in self.argv):
            raise ValueError("a job's argv is a tuple of strings that can be written as UTF-8, without NUL")
        if self.argv and not self.argv[0].startswith("/"):
            raise ValueError(f"a job's argv begins with an absolute path, not {self.argv[0]!r}")
        folders = {str(folder) for name in self.files if isinstance(name, str) for folder in PurePosixPath(name).parents}
        for name, content in self.files.items():
            gap = _gap(name) or ("is a folder of another file, too" if name in folders else None)
            if gap or not isinstance(content, bytes):
                raise ValueError(f"the job's file {str(name)[:200]!r} {gap or 'does not hold bytes'}")


def _bytes(text: str) -> bytes | None:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None


def _gap(name: object) -> str | None:
    """Return what is wrong with the name of a job's file, None if nothing is."""
    written = _bytes(name) if isinstance(name, str) else None
    if not isinstance(name, str) or written is None or "\0" in name:
        return "has a name that is no text of a file name: UTF-8, without NUL"
    parts = written.split(b"/")
    if {b"", b".", b".."} & set(parts):
        return "must be named by a relative path below the working folder, in its shortest form"
    if len(written) > _LONGEST_PATH or max(map(len, parts)) > _LONGEST_NAME:
        return f"has a longer name than {_LONGEST_NAME} bytes, or a longer path than {_LONGEST_PATH}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """What became of a run. One of ``exit_code`` and ``signal`` is None; both are None if the sandbox ended the run (``limit`` says why).

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
        """True if the program ended by itself with exit code 0, within its limits."""
        return self.exit_code == 0 and self.limit is None


class Sandbox(ABC):
    """Runs one program at a time, walled in. A worker process has one; ``run`` may be called from any thread, calls wait for each other.

    A plugin registers a subclass, or a function that returns an instance, by a ``SandboxSpec``; a class in a file is named by its path
    in ``SandboxOptions.backend``. Either is called with one argument, made of ``SandboxOptions.backend_options``: an instance of the
    sandbox's options model (``SandboxSpec.config``, or the attribute ``Options`` of a class in a file), or the mapping itself if there is
    no model. A field ``level`` or ``readable`` of the model gets the value that ``SandboxOptions`` has there.
    """

    level: Level
    """What the walls promise; set before the constructor returns."""
    packages: frozenset[str] | None = None
    """Names of the packages that programs may import beside the standard library, set before the constructor returns; None: not known."""

    @abstractmethod
    def run(self, job: Job) -> ProgramResult:
        """Run it to its end or its first limit; nothing of it is left afterwards.

        :raises SandboxError: the sandbox itself failed, twice; says nothing about the program.
        :raises ValueError: the job's own files leave no room on its disk, or its source none in its memory.
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


class SandboxOptions(BaseModel):
    """How programs are walled in: which sandbox runs them, and what the user asks of it. A reward puts it into its own options."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Literal["auto", "namespaces", "landlock", "remote", "none"] = Field(
        default="auto", description="walls around a program; auto: namespaces, else landlock, else refused; none: no walls at all"
    )
    backend: str = Field(default="local", description="the sandbox that runs programs: its name, ./file.py:Class, or package.module:Class")
    backend_options: dict[str, Any] = Field(default={}, description="options of that sandbox")
    readable: tuple[str, ...] = Field(default=(), description="folders of this machine that programs may read (level namespaces, landlock)")
