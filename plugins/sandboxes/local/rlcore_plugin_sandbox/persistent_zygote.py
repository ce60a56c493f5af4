"""A zygote that is kept alive: it starts within the walls of its sandbox, is replaced if it dies, and is removed with the folder of its
programs."""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.api.sandbox import Job, Level, ProgramResult
from rlcore_plugin_sandbox import bubblewrap, interpreter
from rlcore_plugin_sandbox.jail.program_folder import remove
from rlcore_plugin_sandbox.zygote_process import ZygoteDied, ZygoteProcess, boot_arguments

__all__ = ["Isolation", "PersistentZygote", "imports_of"]

_HERE = Path(__file__).parent
_DEVICES = ["/dev/null", "/dev/full", "/dev/random", "/dev/urandom"]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """The walls of a zygote: the folders of this machine that programs may read, and the packages that they may import (name: its folder,
    and the folder of its libraries if it has one). At level namespaces, also the user under which they run; further writable folders and
    the number of pseudo terminals of sessions."""

    level: Level
    readable: Sequence[str]
    packages: Mapping[str, Sequence[str]]
    user: bubblewrap.JailUser | None = None
    session_folders: tuple[str, ...] = ()
    session_terminals: int = 0


class PersistentZygote:
    """Keeps one zygote at a time, and none before ``start`` or the first ``run``. Not thread-safe. ``warm``: the zygote has imported the
    packages.

    ``process``: the present zygote, or None.
    """

    def __init__(self, walls: Isolation, *, warm: bool = False) -> None:
        self._walls, self._warm = walls, warm
        self.process: ZygoteProcess | None = None
        self._owner, self._home = os.getpid(), ""

    def run(self, job: Job) -> ProgramResult:
        """Run one job, in a new zygote if there is none. :raises ZygoteDied: the zygote died or cannot be started; it is gone."""
        try:
            if self.process is None:
                self.start()
            assert self.process is not None
            return self.process.run(job)
        except BaseException as error:
            self.drop()  # also after an interrupt, so that the next run cannot receive the answer to this one
            # This process lacks descriptors, memory or disk space, which is not the program's fault. A TimeoutError comes from an alarm of
            # the caller.
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise ZygoteDied(str(error)) from error
            raise

    def drop(self) -> None:
        """Kill the zygote now."""
        if self.process is not None:
            self.process.kill()
        self.close()

    def close(self) -> None:
        """End the zygote and remove the files that it leaves."""
        if self.process is not None:
            self.process.close()
            self.process = None
        if self._home:
            self._remove_home()
            self._home = ""

    def start(self) -> None:
        """Start a zygote. Raise ZygoteDied or OSError if that fails; call ``drop`` then."""
        walls = self._walls
        folders = [folder for of_one in walls.packages.values() for folder in of_one]
        setup: dict[str, Any] = {
            "level": str(walls.level),
            "packages": {name: of_one[0] for name, of_one in walls.packages.items()},
            "warm": list(walls.packages) if self._warm else [],
        }
        if (user := walls.user) is not None:
            setup |= {"uid": user.uid, "gid": user.gid, "packages": {name: f"{bubblewrap.PACKAGES}/{name}" for name in walls.packages}}
            self.process = ZygoteProcess(
                lambda control: bubblewrap.command(user, walls.readable, folders, boot_arguments(bubblewrap.JAIL, control, setup)),
                {"PATH": os.environ.get("PATH", os.defpath)},
            )
            return
        self._home = tempfile.mkdtemp(prefix="rlcore-jail-")
        self._remove_home = weakref.finalize(self, _remove, self._home, self._owner)
        setup |= {
            "home": self._home,
            "readable": [*_SYSTEM, *interpreter.standard_library(), *walls.readable, *folders],
            "listed": [str(interpreter.library())],
            "devices": _DEVICES,
        }
        self.process = ZygoteProcess(
            lambda control: [str(interpreter.executable()), *boot_arguments(str(_HERE), control, setup)],
            interpreter.environment(self._home),
        )


def _remove(home: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork of it
        remove(home)


def imports_of(packages: Iterable[str]) -> Callable[[Job], bool] | None:
    """Return a predicate that says whether a job's source, or a module among its files, imports one of these packages; None if there are no
    packages. The predicate searches the text. A program with a hidden import imports the package itself, and a false match does no harm."""
    names = "|".join(map(re.escape, packages)).encode()
    if not names:
        return None
    said = re.compile(rb"\b(?:import|from)\b[^#\n]*\b(?:" + names + rb")\b")

    def imports(job: Job) -> bool:
        source = job.source.encode("utf-8", "surrogatepass") if isinstance(job.source, str) else job.source
        if source is None:
            return False
        modules = (content for name, content in job.files.items() if name.endswith(".py"))
        return any(said.search(text) for text in (source, *modules))

    return imports
