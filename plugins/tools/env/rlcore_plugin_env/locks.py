"""Lock files of installed plugins: ``environments/NAME.lock`` in the package that a plugin's entry point names."""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from rlcore.api import PluginError, UsageError

__all__ = ["Lock", "find_locks", "named_lock"]

_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_-]+")


@dataclass(frozen=True, slots=True)
class Lock:
    """Every package of one environment, each at one version. ``owner``: the distribution whose plugin has the file ``path``."""

    name: str
    owner: str
    path: Path
    requirements: tuple[str, ...]

    @property
    def key(self) -> str:
        """Changes with the packages, with the minor version of Python and with the machine's kind."""
        made_for = (f"{sys.version_info.major}.{sys.version_info.minor}", sys.platform, platform.machine(), *self.requirements)
        return sha256("\n".join(made_for).encode()).hexdigest()[:12]


def find_locks() -> dict[str, Lock]:
    """Name -> lock, sorted. Nothing of a plugin is imported. PluginError if two plugins have one name, or a line pins no version."""
    found: dict[str, Lock] = {}
    for entry in sorted(entry_points(group="rlcore"), key=lambda entry: entry.value):
        owner = entry.dist.name if entry.dist is not None else entry.value
        for path in _lock_files(entry.module.partition(".")[0]):
            other = found.get(path.stem)
            if other is not None and other.path != path:
                raise PluginError(f"{other.owner} and {owner} both have an environment {path.stem!r}; remove one: pip uninstall {owner}")
            found[path.stem] = Lock(path.stem, owner, path, _requirements(path, owner))
    return dict(sorted(found.items()))


def named_lock(name: str) -> Lock:
    """The lock of that name; UsageError, with the nearest one, if no installed plugin has it."""
    locks = find_locks()
    if name in locks:
        return locks[name]
    near = get_close_matches(name, locks, 1)
    known = f"did you mean {near[0]}?" if near else f"installed plugins have: {', '.join(locks) or 'none'}"
    raise UsageError(f"{name!r} is no environment of an installed plugin; {known}")


def _lock_files(package: str) -> list[Path]:
    spec = find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or ()
    return sorted(path for folder in folders for path in Path(folder).glob("environments/*.lock"))


def _requirements(path: Path, owner: str) -> tuple[str, ...]:
    """The lines that are neither empty nor a comment. One that is no ``package==version`` could name a host, or change with the day."""
    lines = [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    for number, line in enumerate(lines, start=1):
        if line and not _PINNED.fullmatch(line):
            raise PluginError(f"{path}, line {number}, of {owner}: {line!r} is not package==version, all that a lock may hold")
    return tuple(line for line in lines if line)
