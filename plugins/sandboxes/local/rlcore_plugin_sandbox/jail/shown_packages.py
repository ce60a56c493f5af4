"""The packages outside the standard library that programs may import. They are found by name, because their folder cannot be listed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location

__all__ = ["import_now", "seed_again", "show"]

_PARTS = {"numpy": ("numpy.linalg", "numpy.random", "numpy.fft")}
"""Parts of a package that it would import at their first use."""


class _Finder:
    """Finds these packages; their modules are found in the usual way."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = folders

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        folder = self._folders.get(name) if path is None else None
        if folder is None:
            return None
        return spec_from_file_location(name, f"{folder}/__init__.py", submodule_search_locations=[folder])


def show(folders: Mapping[str, str]) -> None:
    """Let programs import packages (name: folder)."""
    if folders:
        sys.meta_path.append(_Finder(folders))


def import_now(names: Sequence[str]) -> list[str]:
    """Import packages for all later programs, and return the names of those that worked. A process that forks must not have other threads.
    So if a package starts threads, return []; this process must then not be used."""
    found = []
    for name in names:
        try:
            for part in (name, *_PARTS.get(name, ())):
                __import__(part)
        except Exception:  # any error of a broken package: programs that import it will see it
            continue
        found.append(name)
    return found if len(os.listdir("/proc/self/task")) == 1 else []  # noqa: PTH208


def seed_again() -> None:
    """Give numpy's global generator a new seed if numpy is imported: all forks of one process would have the same."""
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()
