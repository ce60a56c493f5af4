"""Interpreters of other virtual environments.

An environment holds only third-party packages. rlcore and its plugins come from the driver's own files, by links in a folder that is first
on the path, so that both sides run the same code.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_path
from tempfile import TemporaryDirectory

from rlcore.api import ConfigError
from rlcore.api.runtime import ENVIRONMENT, is_library, reason
from rlcore_plugin_workers.python_check import answer_of, compatible_python, installing

__all__ = ["Interpreters", "interpreter", "link_own_packages", "missing_package"]

_PATH = "import json, sys; print(json.dumps(sys.path))"
_INFO = ("METADATA", "PKG-INFO", "RECORD", "direct_url.json", "entry_points.txt")  # PKG-INFO: of a checkout that is on the path


class Interpreters:
    """The interpreters of environments, each examined once. ``close`` removes the links that they share."""

    def __init__(self) -> None:
        self._found: dict[Path | None, tuple[str, dict[str, str]]] = {None: (sys.executable, {})}
        self._packages: TemporaryDirectory[str] | None = None

    def of(self, environment: Path | None, *, same: bool = True) -> tuple[str, dict[str, str]]:
        """Return the ``interpreter`` of an environment; for None, this Python and no variables.

        :param same: its minor version must be that of this Python.
        """
        if environment not in self._found:
            assert environment is not None
            if self._packages is None:
                self._packages = TemporaryDirectory(prefix="rlcore-")
                link_own_packages(Path(self._packages.name))
            self._found[environment] = interpreter(environment, Path(self._packages.name), same=same)
        return self._found[environment]

    def close(self) -> None:
        """Remove the shared links."""
        if self._packages is not None:
            self._packages.cleanup()


def interpreter(environment: Path, packages: Path, *, same: bool = True) -> tuple[str, dict[str, str]]:
    """Return ``compatible_python`` of an environment, and the environment variables for a process in it.

    The process's path begins with ``packages``, which ``link_own_packages`` filled. The run's own entries follow (its folder, PYTHONPATH, a
    notebook's): entries that a bare Python of the driver lacks, and folders of editable installs. The latter hold the user's code and no
    package of the driver's environment.
    """
    python = compatible_python(environment, same=same)
    bare = answer_of(sys.executable, "-E", "-P", "-c", _PATH)
    brought = (Path(entry).absolute() for entry in sys.path if entry not in bare or _editable(Path(entry)))
    path = [str(packages), *(str(entry) for entry in brought if not entry.is_relative_to(sys.prefix))]
    programs, folder = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)]), str(python.parents[1])
    return str(python), {ENVIRONMENT: folder, "VIRTUAL_ENV": folder, "PATH": programs, "PYTHONPATH": os.pathsep.join(path)}


def _editable(entry: Path) -> bool:
    """Return whether a folder on the path of a bare Python comes from an editable install.

    Such a folder has neither the standard library nor packages.
    """
    return entry.is_dir() and entry.name not in ("site-packages", "dist-packages") and not entry.is_relative_to(get_path("stdlib"))


def link_own_packages(packages: Path) -> None:
    """Fill an empty folder with links to rlcore, to all packages that offer plugins, and to the libraries that these share.

    The folder also receives their versions and entry points.
    """
    for own in _own_packages():
        info = packages / f"{own.name.replace('-', '_')}-{own.version}.dist-info"
        info.mkdir()
        for name in _INFO:
            if (text := own.read_text(name)) is not None:
                (info / name).write_text(text, encoding="utf-8")
        modules = {re.split(r"[.:]", entry.value)[0].strip() for entry in own.entry_points}
        for module in modules | set((own.read_text("top_level.txt") or "").split()):
            spec = find_spec(module)
            place = spec and (next(iter(spec.submodule_search_locations or ()), None) or spec.origin)
            if place:
                with suppress(FileExistsError):  # if two distributions share a namespace, the first one gets it
                    (packages / Path(place).name).symlink_to(Path(place).resolve())


def _own_packages() -> list[Distribution]:
    found = {"rlcore": distribution("rlcore")}
    for entry in entry_points(group="rlcore"):
        if entry.dist is not None:
            found.setdefault(entry.dist.name, entry.dist)
    unread = list(found.values())
    while unread:
        for text in unread.pop().requires or ():
            name = re.split(r"[^\w.-]", text)[0]
            with suppress(PackageNotFoundError):
                if name not in found and is_library(required := distribution(name)):
                    found[name] = required
                    unread.append(required)
    return list(found.values())


def missing_package(error: BaseException, name: str) -> ConfigError | None:
    """Return the error to raise if worker ``name`` failed because its environment lacks a module; None for any other failure."""
    folder, cause = os.environ.get(ENVIRONMENT), error
    while cause.__cause__ is not None and not isinstance(cause, ModuleNotFoundError):
        cause = cause.__cause__
    if folder is None or not isinstance(cause, ModuleNotFoundError) or not cause.name:
        return None
    line = installing(Path(sys.executable), cause.name.partition(".")[0])
    return ConfigError(f"{name} runs in environment {folder}, which lacks module {cause.name}; {line} ({reason(cause)})")
