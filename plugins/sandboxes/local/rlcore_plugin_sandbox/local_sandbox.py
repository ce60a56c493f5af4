"""The sandbox of this machine: it chooses a level, keeps a zygote alive, and runs one program at a time."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from rlcore.api import SandboxError
from rlcore.api.sandbox import Job, Level, Limits, ProgramResult, Sandbox, Session, SessionJob
from rlcore_plugin_sandbox import bubblewrap, interpreter
from rlcore_plugin_sandbox.isolation_probe import import_gap, probe
from rlcore_plugin_sandbox.jail import landlock
from rlcore_plugin_sandbox.jail.syscalls import ARCHITECTURES, machine
from rlcore_plugin_sandbox.options import LocalSandboxOptions
from rlcore_plugin_sandbox.persistent_zygote import Isolation, PersistentZygote, imports_of
from rlcore_plugin_sandbox.session import LocalSession
from rlcore_plugin_sandbox.zygote_process import ZygoteDied, ZygoteProcess

__all__ = ["LocalSandbox", "open_local"]

_NOT_READABLE = ("tmp", "proc", "sys", "dev")
_TRIES = 10  # how often to try a sandbox whose zygote is killed
_ROOM = 32 << 20  # bytes of address space that a program needs at least in addition to the imported packages


def open_local(options: LocalSandboxOptions) -> LocalSandbox:
    """Return the best sandbox that the options and this machine allow, after trying it.

    :raises SandboxError: none can be made; the message gives the reasons, level by level.
    """
    if sys.platform != "linux" or machine() not in ARCHITECTURES:
        raise SandboxError(
            f"the sandbox local works only on Linux (x86-64, aarch64), and this is {sys.platform} on {machine()}; run the reward on Linux, "
            f"or choose a remote sandbox with sandbox.backend"
        )
    for folder in options.readable:
        _check_readable("sandbox.readable", folder)
    wanted = [Level.NAMESPACES, Level.LANDLOCK] if options.level == "auto" else [Level(options.level)]
    reasons: list[str] = []
    for level in wanted:
        for make in _ways(level, options, reasons):
            sandbox = _tried(make, reasons)
            if sandbox is not None:
                return sandbox
    raise SandboxError(
        f"no sandbox can be made here ({'; '.join(reasons)}); install bubblewrap (apt install bubblewrap) on a kernel that lets it make "
        f'namespaces, or use Linux 5.13 or later with Landlock, or give the programs your own rights with sandbox.level = "none"'
    )


def _check_readable(setting: str, folder: str, *, or_file: bool = False) -> None:
    if not (Path(folder).is_dir() or (or_file and Path(folder).is_file())):
        raise SandboxError(f"{setting} names {folder!r}, which is not a folder here; name one that exists, or leave it out")
    for path in (Path(folder).absolute(), Path(folder).resolve()):
        if path == Path("/") or path.parts[1] in _NOT_READABLE:
            raise SandboxError(
                f"{setting} names {folder!r}, but programs cannot see the whole machine or folders in /{', /'.join(_NOT_READABLE)}; "
                f"move the folder elsewhere"
            )


_Make = Callable[[], "LocalSandbox"]


def _ways(level: Level, options: LocalSandboxOptions, reasons: list[str]) -> list[_Make]:
    """Return functions that make an untried sandbox of this level. If there is none, add the reason to ``reasons``."""
    packages, absent = _packages(options)
    readable = [str(Path(folder).resolve()) for folder in options.readable]

    def way(facts: str, user: bubblewrap.JailUser | None = None) -> _Make:
        folders, terminals = options.session_folders, options.session_terminals
        walls = Isolation(
            level=level, readable=readable, packages=packages, user=user, session_folders=folders, session_terminals=terminals
        )
        return lambda: LocalSandbox(walls, facts, absent)

    if level is Level.NAMESPACES:
        version = bubblewrap.version()
        if version is None:
            reasons.append("namespaces: bubblewrap is not installed")
            return []
        return [way(version, user) for user in bubblewrap.jail_users()]
    before = f"; no {reasons[-1]}" if reasons else ""
    if level is Level.LANDLOCK:
        abi = landlock.abi()
        if not abi:
            reasons.append("landlock: this kernel does not have it")
            return []
        return [way(f"Landlock ABI {abi} and seccomp{before}")]
    return [way("NO WALLS: programs have this user's rights")]


def _packages(options: LocalSandboxOptions) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the folders of the packages that programs may import, and the reasons why others are missing. Raise SandboxError for a missing
    package that the user named."""
    found, absent = {}, {}
    for name in options.packages:
        if paths := interpreter.package(name):
            found[name] = [str(path) for path in paths]
        elif "packages" not in options.model_fields_set:
            absent[name] = "it is not installed here"
        else:
            gap = "which is not an installed package with its own folder"
            raise SandboxError(f"sandbox.backend_options.packages names {name!r}, {gap}; install it, or leave it out")
    return found, absent


def _tried(make: _Make, reasons: list[str]) -> LocalSandbox | None:
    """Return the sandbox if it runs programs and its walls hold; else return None and add the reason to ``reasons``. If another process
    killed its zygote, try again, because that says nothing about this machine."""
    for left in reversed(range(_TRIES)):
        sandbox, killed = None, False
        try:
            sandbox = make()
            if (gap := probe(sandbox)) is None:
                sandbox.try_packages()
                return sandbox
        except SandboxError as error:
            gap, killed = str(error), isinstance(error.__cause__, ZygoteDied) and error.__cause__.killed
        except OSError as error:  # resources that the probe itself needs
            gap = f"{sandbox.level if sandbox else 'sandbox'}: {error}"
        if sandbox is not None:
            sandbox.close()
        if not (killed and left):
            reasons.append(gap)
            break
    return None


class LocalSandbox(Sandbox):
    """Runs programs in zygotes, one program at a time. A zygote that dies is replaced, and its run is tried once more.

    The first program that imports one of the packages starts a second zygote, which has imported them already. Programs without such
    imports never use it.

    :raises SandboxError: the zygote does not start.
    """

    def __init__(self, walls: Isolation, facts: str, absent: Mapping[str, str]) -> None:
        self.level = walls.level
        self.packages: frozenset[str] = frozenset(walls.packages)
        self._facts, self._walls, self._absent = facts, walls, dict(absent)
        self._lock = threading.Lock()
        self._closed, self._owner = False, os.getpid()
        self._sessions: weakref.WeakSet[LocalSession] = weakref.WeakSet()
        self._plain = PersistentZygote(walls)
        self._warm: PersistentZygote | None = None
        self._cold = False
        self._imports = imports_of(walls.packages)
        try:
            self._plain.start()
        except (ZygoteDied, OSError) as error:
            self._plain.drop()
            raise SandboxError(f"{self.level}: {error}") from error

    @property
    def pid(self) -> int | None:
        """The process id of the zygote of most programs (level namespaces: of the bubblewrap around it); None after ``close``."""
        return self._zygote.pid if self._zygote else None

    @property
    def _zygote(self) -> ZygoteProcess | None:
        return self._plain.process

    def describe(self) -> str:
        packages = f"; programs may import {', '.join(sorted(self.packages))}" if self.packages else ""
        absent = "".join(f"; programs cannot import {name}: {gap}" for name, gap in self._absent.items())
        return f"{self.level} ({self._facts}{packages}{absent})"

    def try_packages(self) -> None:
        """Import each package in a separate program, and exclude those that fail: they may need files that the walls hide."""
        for name in sorted(self.packages):
            if (gap := import_gap(self, name)) is not None:
                self.packages -= {name}
                self._absent[name] = gap

    def run(self, job: Job) -> ProgramResult:
        _must_fit(len(job.source or b""), job.files, job.limits)
        with self._lock:
            self._must_be_open()
            with contextlib.suppress(ZygoteDied):
                return self._once(job)
            try:
                return self._once(job)
            except ZygoteDied as error:
                raise SandboxError(f"{self.level}: the sandbox died twice with the same program ({error})") from error

    def session(self, job: SessionJob) -> Session:
        if (user := self._walls.user) is None:
            return super().session(job)
        _must_fit(0, job.files, job.limits)
        for folder in job.readable:
            _check_readable("the session's readable", str(folder), or_file=True)
        if job.reach is not None and not job.reach.is_socket():
            raise SandboxError(f"the session's reach names {str(job.reach)!r}, which is not a Unix socket here; start its server first")
        self._must_be_open()
        session = LocalSession(user, self._walls, job)
        with self._lock:
            self._sessions.add(session)
            if not self._closed:
                return session
        session.close()
        raise SandboxError("the sandbox was closed while the session started")

    def close(self) -> None:
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._closed = True
            for session in list(self._sessions):
                session.close()
            for zygote in filter(None, (self._plain, self._warm)):
                zygote.close()

    def _must_be_open(self) -> None:
        if os.getpid() != self._owner:
            raise SandboxError("the sandbox belongs to the process that opened it; open one here")
        if self._closed:
            raise SandboxError("the sandbox is closed; open a new one")

    def _once(self, job: Job) -> ProgramResult:
        return self._zygote_for(job).run(job)

    def _zygote_for(self, job: Job) -> PersistentZygote:
        """Return the zygote with imported packages if the program imports one and its memory limit leaves enough room; else the plain
        one."""
        if self._imports is None or not self._imports(job):
            return self._plain
        if self._warm is None:
            self._warm = PersistentZygote(self._walls, warm=True)
        if self._warm.process is None and not self._cold:
            try:
                self._warm.start()
            except (ZygoteDied, OSError) as error:
                self._warm.drop()
                self._cold = isinstance(error, ZygoteDied)  # a package that kills its process: programs may import it themselves
        process = self._warm.process
        fits = process is not None and process.imported and process.mapped + _ROOM <= job.limits.memory_bytes
        return self._warm if fits else self._plain


def _must_fit(source: int, files: Mapping[str, bytes], limits: Limits) -> None:
    """Raise ValueError if the job's files fill its disk or its source fills its memory: only the program itself may cause that."""
    payload = source + sum(map(len, files.values()))
    if payload > limits.memory_bytes // 4:
        raise ValueError(
            f"the job's source and files ({payload} bytes) do not fit: a quarter of memory_bytes is {limits.memory_bytes // 4}"
        )
    size = sum(-(-len(content) // mmap.PAGESIZE) * mmap.PAGESIZE for content in files.values())
    entries = len({part for name in files for part in (name, *map(str, PurePosixPath(name).parents))})
    if size > limits.disk_bytes or entries > limits.files // 2:
        raise ValueError(
            f"the job's {len(files)} files ({size} bytes in whole pages, {entries} with their folders) do not fit: "
            f"disk_bytes is {limits.disk_bytes}, and half of files {limits.files // 2}"
        )
