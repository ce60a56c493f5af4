"""Packages that programs may import beside the standard library: found by name, since the folder that they lie in cannot be listed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location

__all__ = ["import_now", "seed_again", "show"]

_PARTS = {"numpy": ("numpy.linalg", "numpy.random", "numpy.fft")}
"""What it would import at its first use."""


class _Finder:
    """Finds these packages; what lies in them is found as always."""

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
    """Import packages for all programs to come; returns those that could be. A package that starts threads is none for a process that
    forks: then it is [], and this process must not be used."""
    found = []
    for name in names:
        try:
            for part in (name, *_PARTS.get(name, ())):
                __import__(part)
        except Exception:  # whatever a package raises that is broken here: programs that import it will see
            continue
        found.append(name)
    return found if len(os.listdir("/proc/self/task")) == 1 else []  # noqa: PTH208


def seed_again() -> None:
    """Give the shared generator of numpy, if it is imported, a new seed: every fork of one process has the same."""
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()
