"""Lock files of installed plugins: ``environments/NAME.lock`` in the package that a plugin's entry point names."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from hashlib import sha256
from importlib.metadata import distribution, entry_points, version
from importlib.util import find_spec
from pathlib import Path

from rlcore.api import PluginError, UsageError

__all__ = ["HERE", "Lock", "find_locks", "named_lock"]

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_MACHINE = f"{sys.platform} {platform.machine()}"
HERE = f"Python {_PYTHON} on {_MACHINE}"
"""This Python and machine, which a lock's line ``# for:`` is compared with."""
_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_-]+")
_INDEX = re.compile(r"#\s*index:\s*")
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Lock:
    """Every package of one environment, each at one version. ``owner``: the distribution whose plugin has the file ``path``."""

    name: str
    owner: str
    path: Path

    @cached_property
    def requirements(self) -> dict[str, str]:
        """``package==version`` -> the index that has it in addition to those of pip's settings, or "". PluginError for any other line: it
        could name a server for every package, or its meaning could change from day to day."""
        found = {}
        for number, line in enumerate(self._text.splitlines(), start=1):
            words, *index = _INDEX.split(line.strip(), maxsplit=1)
            pinned = words.partition("#")[0].strip()
            if (pinned or index) and not _PINNED.fullmatch(pinned):
                raise PluginError(f"{self.path}, line {number}, of {self.owner}: {line.strip()!r} is not package==version")
            if pinned:
                found[pinned] = "".join(index)
        return found

    @property
    def key(self) -> str:
        """A key that changes with the packages, with the minor version of Python and with the kind of machine."""
        made_for = (self.python, sys.platform, platform.machine(), *self.requirements)
        return sha256("\n".join(made_for).encode()).hexdigest()[:12]

    @property
    def python(self) -> str:
        """The minor version of Python that the lock asks for (line ``# python: 3.12``); that of this Python if it does not."""
        found = re.search(r"^#\s*python:\s*(\d+\.\d+)\s*$", self._text, re.MULTILINE)
        return found[1] if found else _PYTHON

    @property
    def made_for(self) -> str:
        """The Python and machine of its environment here."""
        return f"Python {self.python} on {_MACHINE}"

    def check_machine(self) -> None:
        """Raise UsageError if the lock names machines (lines ``# for: Python 3.11 on linux x86_64``) and this is none of them."""
        fits = re.findall(r"^#\s*for:\s*(.*?)\s*$", self._text, re.MULTILINE)
        if fits and self.made_for not in fits:
            raise UsageError(f"environment {self.name} is for {' or '.join(fits)}, but this is {HERE}; build it with rlcore there")

    def check_packages(self) -> None:
        """Raise PluginError if the lock lacks packages that rlcore imports, and has no line ``# without: rlcore``, as for servers that only
        run programs of others."""
        if re.search(r"^#\s*without:\s*rlcore\s*$", self._text, re.MULTILINE):
            return
        required = [_NAME.match(text)[0] for text in distribution("rlcore").requires or () if "extra ==" not in text]  # type: ignore[index]
        there = {_plain(pinned.partition("==")[0]) for pinned in self.requirements}
        if lacking := [name for name in required if _plain(name) not in there]:
            here = " ".join(f"{name}=={version(name)}" for name in lacking)
            raise PluginError(
                f"environment {self.name}: its lock lacks {', '.join(lacking)}, which rlcore imports in it; add them to {self.path} "
                f"(this Python has {here}), or the line `# without: rlcore` if only other programs run in it"
            )

    def interpreter(self) -> str:
        """Return the Python that makes the environment. Raise UsageError if the lock asks for a version that this machine lacks."""
        if self.python == _PYTHON:
            return sys.executable
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        name = f"python{self.python}"
        for program in filter(None, [shutil.which(name), *map(str, sorted(pyenv.glob(f"{self.python}*/bin/{name}"), reverse=True))]):
            # a program of pyenv that chooses a version may have none to choose
            if subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0:
                return program
        raise UsageError(f"environment {self.name} needs Python {self.python}, and there is no {name} on PATH or in pyenv; install it")

    @property
    def cost(self) -> tuple[int, int] | None:
        """Megabytes on disk and minutes of a build as the lock names them (line ``# cost: 1600 MB, 2 minutes``); None if it does not."""
        found = re.search(r"^#\s*cost:\s*(\d+) MB, (\d+) minutes?\s*$", self._text, re.MULTILINE)
        return (int(found[1]), int(found[2])) if found else None

    @cached_property
    def _text(self) -> str:
        return self.path.read_text(encoding="utf-8")


def find_locks() -> dict[str, list[Lock]]:
    """Return name -> locks of that name, sorted. If there are several, ``named_lock`` raises an error. No plugin is imported, and no lock
    is read."""
    found: dict[str, list[Lock]] = {}
    for entry in sorted(entry_points(group="rlcore"), key=lambda entry: entry.value):
        owner = entry.dist.name if entry.dist is not None else entry.value
        for path in _lock_files(entry.module.partition(".")[0]):
            same = found.setdefault(path.stem, [])
            if path not in [other.path for other in same]:
                same.append(Lock(path.stem, owner, path))
    return dict(sorted(found.items()))


def named_lock(name: str) -> Lock:
    """Return the lock of that name. UsageError, with the nearest name, if no installed plugin has it; PluginError if two have it. Locks of
    other names are not read."""
    locks = find_locks()
    if name not in locks:
        near = get_close_matches(name, locks, 1)
        known = f"did you mean {near[0]}?" if near else f"installed plugins have: {', '.join(locks) or 'none'}"
        raise UsageError(f"{name!r} is not an environment of an installed plugin; {known}")
    lock, *others = locks[name]
    if others:
        owner = others[0].owner
        raise PluginError(f"{lock.owner} and {owner} both have an environment {name!r}; remove one: pip uninstall {owner}")
    return lock


def _plain(name: str) -> str:
    """Return the common spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _lock_files(package: str) -> list[Path]:
    spec = find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or ()
    return sorted(path for folder in folders for path in Path(folder).glob("environments/*.lock"))
