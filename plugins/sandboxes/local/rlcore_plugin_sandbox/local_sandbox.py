"""The sandbox of this machine: picks a level, keeps a zygote alive, runs one program at a time."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from rlcore.api import SandboxError
from rlcore.api.sandbox import Job, Level, Ran, Sandbox
from rlcore_plugin_sandbox import bubblewrap, interpreter
from rlcore_plugin_sandbox.jail import landlock
from rlcore_plugin_sandbox.jail.program_folder import remove
from rlcore_plugin_sandbox.jail.syscalls import ARCHITECTURES, machine
from rlcore_plugin_sandbox.options import LocalSandboxOptions
from rlcore_plugin_sandbox.wall_probe import probe
from rlcore_plugin_sandbox.zygote_process import ZygoteDied, ZygoteProcess, boot_arguments

__all__ = ["LocalSandbox", "open_local"]

_HERE = Path(__file__).parent
_NOT_READABLE = ("tmp", "proc", "sys", "dev")
# bubblewrap.py leaves /dev/zero out, since memory mapped from it outlives its process if another one holds it. Here there is only one.
_DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
_SYSTEM = [
    "/usr/lib",
    "/usr/lib64",
    "/usr/bin",
    "/usr/libexec",
    "/usr/share",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/ld.so.cache",
    "/etc/alternatives",
]


def open_local(options: LocalSandboxOptions) -> LocalSandbox:
    """The best sandbox that the options allow and this machine gives, tried out.

    :raises SandboxError: none can be made; says why, level by level.
    """
    if sys.platform != "linux" or machine() not in ARCHITECTURES:
        raise SandboxError(
            f"programs are walled in on Linux (x86-64, aarch64) only, this is {sys.platform} on {machine()}; run the reward there, "
            f"or name a sandbox elsewhere with sandbox.backend"
        )
    for folder in options.readable:
        if not Path(folder).is_dir():
            raise SandboxError(f"sandbox.readable names {folder!r}, which is no folder here; name one that exists, or leave it out")
        if (path := Path(folder).resolve()) == Path("/") or path.parts[1] in _NOT_READABLE:
            raise SandboxError(
                f"sandbox.readable names {folder!r}; the whole machine, or what lies in /{', /'.join(_NOT_READABLE)}, cannot be shown to "
                f"programs: put it elsewhere"
            )
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


_Make = Callable[[], "LocalSandbox"]


def _ways(level: Level, options: LocalSandboxOptions, reasons: list[str]) -> list[_Make]:
    """Return functions that make a sandbox of this level, untried; if there is none, add the reason to ``reasons``."""
    readable = [str(Path(folder).resolve()) for folder in options.readable]
    if level is Level.NAMESPACES:
        version = bubblewrap.version()
        if version is None:
            reasons.append("namespaces: bubblewrap is not installed")
            return []
        return [lambda user=user: LocalSandbox(level, version, readable, user) for user in bubblewrap.jail_users()]  # type: ignore[misc]
    before = f"; no {reasons[-1]}" if reasons else ""
    if level is Level.LANDLOCK:
        abi = landlock.abi()
        if not abi:
            reasons.append("landlock: this kernel has none")
            return []
        return [lambda: LocalSandbox(level, f"Landlock ABI {abi} and seccomp{before}", readable)]
    return [lambda: LocalSandbox(level, "NO WALLS: programs have this user's rights", readable)]


def _tried(make: _Make, reasons: list[str]) -> LocalSandbox | None:
    sandbox = None
    try:
        sandbox = make()
        gap = probe(sandbox)
    except SandboxError as error:
        gap = str(error)
    except OSError as error:  # what the probe itself needs
        gap = f"{sandbox.level if sandbox else 'sandbox'}: {error}"
    if gap is None:
        return sandbox
    if sandbox is not None:
        sandbox.close()
    reasons.append(gap)
    return None


class LocalSandbox(Sandbox):
    """Runs programs in one zygote at a time. A zygote that dies is replaced, and the run that it was busy with is tried once more.

    :raises SandboxError: the zygote does not start.
    """

    def __init__(self, level: Level, facts: str, readable: list[str], user: bubblewrap.JailUser | None = None) -> None:
        self.level = level
        self._facts, self._readable, self._user = facts, readable, user
        self._lock = threading.Lock()
        self._zygote: ZygoteProcess | None = None
        self._closed, self._owner = False, os.getpid()
        self._home = ""
        try:
            self._start()
        except (ZygoteDied, OSError) as error:
            self._forget_home()
            raise SandboxError(f"{level}: {error}") from error

    @property
    def pid(self) -> int | None:
        """Process id of the zygote (level namespaces: of bubblewrap around it); None after ``close``."""
        return self._zygote.pid if self._zygote else None

    def describe(self) -> str:
        return f"{self.level} ({self._facts})"

    def run(self, job: Job) -> Ran:
        _must_fit(job)
        if os.getpid() != self._owner:
            raise SandboxError("the sandbox belongs to the process that opened it; open one here")
        with self._lock:
            if self._closed:
                raise SandboxError("the sandbox is closed; open a new one")
            with contextlib.suppress(ZygoteDied):
                return self._once(job)
            try:
                return self._once(job)
            except ZygoteDied as error:
                raise SandboxError(f"the sandbox died twice over one program ({error})") from error

    def close(self) -> None:
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._closed = True
            if self._zygote is not None:
                self._zygote.close()
                self._zygote = None
            self._forget_home()

    def _once(self, job: Job) -> Ran:
        try:
            if self._zygote is None:
                self._start()
            assert self._zygote is not None
            return self._zygote.run(job)
        except BaseException as error:
            self._drop()  # after an interrupt, too: the answer that is still to come must not be taken for that of the next run
            # This process lacks descriptors, memory or disk, which no program caused. A TimeoutError comes from an alarm of the caller.
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise ZygoteDied(str(error)) from error
            raise

    def _drop(self) -> None:
        if self._zygote is not None:
            self._zygote.kill()
            self._zygote.close()
            self._zygote = None
        self._forget_home()

    def _start(self) -> None:
        if self._user is not None:
            user, readable = self._user, self._readable
            setup = {"level": str(self.level), "uid": user.uid, "gid": user.gid}
            self._zygote = ZygoteProcess(
                lambda control: bubblewrap.command(user, readable, boot_arguments(bubblewrap.JAIL, control, setup)),
                {"PATH": os.environ.get("PATH", os.defpath)},
            )
            return
        self._home = tempfile.mkdtemp(prefix="rlcore-jail-")
        self._remove_home = weakref.finalize(self, _remove, self._home, self._owner)
        walls = {
            "readable": [*_SYSTEM, *interpreter.standard_library(), *self._readable],
            "listed": [str(interpreter.library())],
            "devices": _DEVICES,
        }
        setup = {"level": str(self.level), "home": self._home, **walls}
        self._zygote = ZygoteProcess(
            lambda control: [str(interpreter.executable()), *boot_arguments(str(_HERE), control, setup)],
            interpreter.environment(self._home),
        )

    def _forget_home(self) -> None:
        if self._home:
            self._remove_home()
            self._home = ""


def _remove(home: str, owner: int) -> None:
    if os.getpid() == owner:  # and not a fork of it
        remove(home)


def _must_fit(job: Job) -> None:
    """Raise ValueError if the job's files fill its disk or its source fills its memory: only the program itself may do that."""
    payload = len(job.source or b"") + sum(map(len, job.files.values()))
    if payload > job.limits.memory_bytes // 4:
        raise ValueError(
            f"the job's source and files ({payload} bytes) do not fit: a quarter of memory_bytes is {job.limits.memory_bytes // 4}"
        )
    size = sum(-(-len(content) // mmap.PAGESIZE) * mmap.PAGESIZE for content in job.files.values())
    entries = len({part for name in job.files for part in (name, *map(str, PurePosixPath(name).parents))})
    if size > job.limits.disk_bytes or entries > job.limits.files // 2:
        raise ValueError(
            f"the job's {len(job.files)} files ({size} bytes in whole pages, {entries} with their folders) do not fit: "
            f"disk_bytes is {job.limits.disk_bytes}, and half of files {job.limits.files // 2}"
        )
