"""Sandboxes: the records of a job and its result, the base class, and the user's options.

This module knows no process and no operating system.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from rlcore.contracts.errors import SandboxError
from rlcore.contracts.public_members import EnumMembers

__all__ = ["Job", "Level", "Limit", "Limits", "ProgramResult", "Sandbox", "SandboxOptions", "Session", "SessionJob"]

_MIB = 1 << 20
_LEAST = {"memory_bytes": 64 * _MIB, "disk_bytes": 4096, "files": 16, "output_bytes": 0, "address_bytes": 0}  # the minimum of a jail itself
_MOST_SECONDS, _MOST = 86400.0, 1 << 50
_LONGEST_NAME, _LONGEST_PATH = 255, 3000  # bytes: the limit of file systems, and about that of the kernel


class Level(StrEnum, metaclass=EnumMembers):
    """The way in which a program is isolated."""

    NAMESPACES = "namespaces"
    """bubblewrap: fresh user, pid, mount, ipc, net and uts namespaces for every run, seccomp, resource limits."""
    LANDLOCK = "landlock"
    """Landlock, seccomp and resource limits, for machines that allow no namespaces, such as most containers."""
    REMOTE = "remote"
    """The program runs on another machine, whose service isolates it."""
    NONE = "none"
    """A process with resource limits and without isolation. Users get it only if they ask for it."""


class Limit(StrEnum, metaclass=EnumMembers):
    """The limit that a program reached."""

    CPU = "cpu"
    WALL = "wall"
    MEMORY = "memory"
    OUTPUT = "output"
    DISK = "disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The resources that one run may use.

    ``cpu_seconds``, ``memory_bytes``: for each process. The resident memory of the whole process tree is limited to ``memory_bytes`` too.
    ``output_bytes``: for standard output. Standard error is cut; it never stops a run.
    ``disk_bytes``, ``files``: for the private folder.
    ``processes``: processes and threads together (level landlock: threads only).
    ``address_bytes``: if above ``memory_bytes``, the address space that a process may reserve without using it, as Node and Java do. Then
        only resident memory is limited to ``memory_bytes``.
    """

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
    """One run of a Python program or of a command; exactly one of ``source`` and ``argv`` is set.

    ``source`` is the program, as text or as the bytes of a file. ``argv`` begins with an absolute path. ``files`` are in the working
    folder, by relative path, before the program starts.

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
            gap = _gap(name) or ("is also a folder of another file" if name in folders else None)
            if gap or not isinstance(content, bytes):
                raise ValueError(f"the job's file {str(name)[:200]!r} {gap or 'does not hold bytes'}")


def _bytes(text: str) -> bytes | None:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None


def _gap(name: object) -> str | None:
    """Return what is wrong with the name of a job's file, None if it is valid."""
    written = _bytes(name) if isinstance(name, str) else None
    if not isinstance(name, str) or written is None or "\0" in name:
        return "has a name that is not a valid file name: UTF-8, without NUL"
    parts = written.split(b"/")
    if {b"", b".", b".."} & set(parts):
        return "must be named by a relative path below the working folder, in its shortest form"
    if len(written) > _LONGEST_PATH or max(map(len, parts)) > _LONGEST_NAME:
        return f"has a name of more than {_LONGEST_NAME} bytes, or a path of more than {_LONGEST_PATH}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionJob:
    """A command that runs for minutes, with its children, while the caller speaks with it over pipes.

    ``argv`` begins with an absolute path. ``files`` are in the working folder, by relative path, before the command starts.

    ``env``: environment variables, in addition to those of the sandbox. The command sees no others.
    ``readable``: absolute folders and files of this machine that it may read, at the same paths. For a virtual environment, the libraries
        of its interpreter are added.
    ``reach``: a Unix socket of this machine, the only thing that it can reach. Inside it has the address ``http://127.0.0.1:PORT``.
    ``limits``: ``cpu_seconds`` and ``memory_bytes`` are for the whole process tree too. ``output_bytes`` has no effect.

    >>> SessionJob(argv=("/opt/agent/bin/python", "-m", "agent"), readable=(Path("/opt/agent"),), reach=Path("/run/gateway.sock"))
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    reach: Path | None = None
    port: int = 8000
    limits: Limits = Limits(
        cpu_seconds=3600.0, wall_seconds=3600.0, memory_bytes=2048 * _MIB, disk_bytes=256 * _MIB, files=1 << 14, processes=256,
        address_bytes=1 << 40,
    )  # fmt: skip

    def __post_init__(self) -> None:
        Job(argv=self.argv, files=self.files)
        words = [word for pair in self.env.items() for word in pair]
        if any(not isinstance(word, str) or "\0" in word or _bytes(word) is None for word in words) or any(
            not name or "=" in name for name in self.env
        ):
            raise ValueError("the env of a session maps names to values: strings that can be written as UTF-8, without NUL; no = in a name")
        if not 1024 <= self.port <= 65535:
            raise ValueError(f"the port of a session is {self.port!r}; it must be a number from 1024 to 65535")
        for path in (*self.readable, *([] if self.reach is None else [self.reach])):
            if not isinstance(path, Path) or not path.is_absolute() or ".." in path.parts:
                raise ValueError(f"a session's readable and reach are absolute paths without '..', not {str(path)!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """The result of a run. One of ``exit_code`` and ``signal`` is None.

    If the sandbox ended the run, both are None, and ``limit`` says why.

    ``stdout``: at most ``output_bytes``.
    ``stderr``: the last 4 KiB.
    ``cpu_seconds``: of the program and the children that it waited for.
    ``memory_bytes``: peak resident memory of the largest process.
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


class Session(ABC):
    """A running ``SessionJob``. It ends with its first process, at a limit, with ``kill``, or if the caller's process dies. Then nothing of
    it is left, except its files.

    Any thread may call the methods.
    """

    stdin: BinaryIO
    """A pipe to the command, not buffered. Close it to end its input."""
    stdout: BinaryIO
    """A pipe from the command, buffered. A caller that does not read it stops the command when the pipe is full."""

    @abstractmethod
    def poll(self) -> ProgramResult | None:
        """Return the result, without ``stdout`` and with the last 16 KiB of ``stderr``; None while the session runs.

        :raises SandboxError: the sandbox itself failed; this says nothing about the command.
        """

    @abstractmethod
    def wait(self, seconds: float | None = None) -> ProgramResult:
        """Return the result when the session has ended. Raise TimeoutError if it still runs after ``seconds``, and what ``poll`` raises."""

    @abstractmethod
    def fileno(self) -> int:
        """Return a descriptor that an event loop can watch: it is readable when the session has ended."""

    @abstractmethod
    def kill(self) -> None:
        """End every process of the session now. The result is then ``signal`` 9, if it had none yet."""

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Return the relative paths of the regular files in the working folder, sorted. Links are not followed."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a regular file of the working folder. Raise FileNotFoundError if there is none."""

    @abstractmethod
    def close(self) -> None:
        """Kill the session and remove its files. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sandbox(ABC):
    """A sandbox that runs one program at a time in isolation.

    A worker process has one. Any thread may call ``run``; concurrent calls wait for each other.

    A plugin registers a subclass, or a function that returns an instance, with a ``SandboxSpec``. ``SandboxOptions.backend`` names a class
    in a file by its path. rlcore calls either with one argument, made from ``SandboxOptions.backend_options``. The argument is an instance
    of the sandbox's options model (``SandboxSpec.config``, or the attribute ``Options`` of a class in a file), or the mapping itself if
    there is no model. The fields ``level`` and ``readable`` of the model, if it has them, receive the values of ``SandboxOptions``.
    """

    level: Level
    """The isolation that the sandbox guarantees; set before the constructor returns."""
    packages: frozenset[str] | None = None
    """Names of the packages, in addition to the standard library, that programs may import; None: not known.

    Set before the constructor returns.
    """

    @abstractmethod
    def run(self, job: Job) -> ProgramResult:
        """Run the job to its end or its first limit, and leave nothing of it behind.

        :raises SandboxError: the sandbox itself failed twice; this says nothing about the program.
        :raises ValueError: the job's own files fill its disk, or its source fills its memory.
        """

    def session(self, job: SessionJob) -> Session:
        """Start a session; any number can run at once, beside ``run``. ``close`` ends them.

        :raises SandboxError: this sandbox has no sessions, or the session cannot be started.
        :raises ValueError: the job's files fill its disk.
        """
        raise SandboxError(
            f'sessions need a sandbox of level namespaces, and this one is {self.describe()}; set sandbox.backend = "local" and '
            f'sandbox.level = "namespaces", and install bubblewrap (apt install bubblewrap)'
        )

    @abstractmethod
    def describe(self) -> str:
        """Return one line for the user: the level and its mechanism."""

    @abstractmethod
    def close(self) -> None:
        """Stop everything. May be called twice."""

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SandboxOptions(BaseModel):
    """The isolation of programs: which sandbox runs them, and the user's demands on it. A reward includes this model in its own options."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Literal["auto", "namespaces", "landlock", "remote", "none"] = Field(
        default="auto", description="isolation of programs; auto: namespaces, else landlock, else refused; none: no isolation at all"
    )
    backend: str = Field(default="local", description="the sandbox that runs programs: its name, ./file.py:Class, or package.module:Class")
    backend_options: dict[str, Any] = Field(default={}, description="options of that sandbox")
    readable: tuple[str, ...] = Field(default=(), description="folders of this machine that programs may read (level namespaces, landlock)")
