"""The key of a group: a hash of everything that decides whether its tests pass."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

from tests.groups.closure import Graph, Names, registered_names
from tests.groups.facts import KnownFacts
from tests.groups.table import Group, Table
from tests.groups.tree import Tree

__all__ = ["Key", "Keys", "cache_folder"]

NOT_READ = {
    *("HOME", "LANG", "PATH", "PWD", "TERM", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"),
    *("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST_WORKER"),
}
"""Variables that files name and that differ from shell to shell without a test noticing. What PATH leads to is looked at by itself."""
PREFIXES = ("RLCORE_", "OMP_", "HF_", "RAY_", "CUDA_", "PYTHON", "LC_", "XDG_", "TMPDIR", "TZ")
PROGRAMS = ("bwrap", "chromium")
_LANDLOCK, _ASK_VERSION = 444, 1


@dataclass(frozen=True)
class Key:
    """``text`` is what a record is filed under; ``files`` and ``facts`` are what it was made of."""

    text: str
    files: dict[str, str]
    facts: dict[str, str]


class Keys:
    """Of all groups of a table over one tree."""

    def __init__(self, table: Table, tree: Tree, names: Names | None = None, known: KnownFacts | None = None) -> None:
        self._table, self._tree = table, tree
        self._known = known or KnownFacts(cache_folder() / "facts.json")
        self._graph = Graph(tree, registered_names() if names is None else names, self._known)

    def of(self, group: Group) -> Key:
        """Of one group."""
        why = self.why(group)
        files = {path: self._tree.hash(path) for path in sorted(why)}
        facts = {**machine(), **variables(self._graph.variables(why)), "group": group.stated}
        text = blake2b(json.dumps([files, facts], sort_keys=True).encode(), digest_size=12).hexdigest()
        self._known.save()
        return Key(text, files, facts)

    def why(self, group: Group) -> dict[str, str]:
        """Each file that the group reads, and the file that led to it."""
        return self._graph.closure([*self.files(group), *self._of_environments(group)])

    def files(self, group: Group) -> list[str]:
        """The files of its tests."""
        return self._table.files(group, self._tree.paths, lambda path: self._tree.read(path).decode("utf-8", "replace"))

    def _of_environments(self, group: Group) -> list[str]:
        """The locks of its environments, and the code that builds from them."""
        locks = {f"{name}.lock" for name in group.environments}
        found = [path for path in self._tree.paths if path.rpartition("/")[2] in locks]
        builder = [path for path in self._tree.paths if path.endswith(("/locks.py", "/environment_folders.py"))]
        return [*found, *(builder if found else [])]


def variables(named: Iterable[str]) -> dict[str, str]:
    """Environment variables that are set, and that a file names or that begin like those which tests read."""
    chosen = {*named, *(name for name in os.environ if name.startswith(PREFIXES))} - NOT_READ
    return {f"${name}": os.environ[name] for name in chosen if name in os.environ}


@cache
def machine() -> dict[str, str]:
    """What is not in the repository: Python, its packages, programs, the kernel."""
    return {
        "python": f"{sys.version} on {platform.machine()}",
        "packages": _packages(),
        **{name: _said(name, "--version") for name in PROGRAMS},
        "kernel": f"Landlock {_landlock()}, namespaces {_said('bwrap', '--unshare-all', '--dev-bind', '/', '/', 'echo', 'yes')}",
        "user": "root" if os.getuid() == 0 else "not root",
    }


def _packages() -> str:
    """Names and versions of everything that is installed beside rlcore."""
    names = sorted(path.name for path in Path(sys.prefix).glob("lib/python*/site-packages/*.dist-info"))
    return blake2b("\n".join(names).encode(), digest_size=12).hexdigest()


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()
    except OSError:
        return "not there"


def _landlock() -> int:
    """The version that the kernel knows; below 1 if it has none."""
    return int(ctypes.CDLL(None, use_errno=True).syscall(_LANDLOCK, None, 0, _ASK_VERSION))


def cache_folder() -> Path:
    """Beside the environments of ``rlcore env``: in XDG_CACHE_HOME, or in ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".cache") / "rlcore" / "groups"
