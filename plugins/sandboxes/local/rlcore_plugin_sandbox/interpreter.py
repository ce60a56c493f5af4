"""The interpreter that runs programs: the base interpreter of this process, without its installed packages."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path

__all__ = ["base", "environment", "executable", "library", "package", "site_packages", "standard_library"]


def base() -> Path:
    """Return the installation folder of the interpreter, not the virtual environment in which this process may run."""
    return Path(sys.base_prefix).resolve()


def executable() -> Path:
    """Return the path of the interpreter's executable file."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def library() -> Path:
    """Return the folder of the interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib", vars={"base": str(base()), "installed_base": str(base())}))


def site_packages() -> list[Path]:
    """Return the folders of installed packages inside the library."""
    return [library() / name for name in ("site-packages", "dist-packages") if (library() / name).is_dir()]


def standard_library() -> list[str]:
    """Return the paths from which the interpreter reads and imports, without the installed packages."""
    hidden = set(site_packages())
    shared = [str(path) for path in (base() / "lib").glob("*.so*")]
    return [str(path) for path in library().iterdir() if path not in hidden] + shared + [str(executable())]


def package(name: str) -> list[Path]:
    """Return the folder of an installed package and the folder of its wheel's libraries; [] if this process cannot import it.

    The search uses the import path of this process, so also that of a virtual environment. The package is not imported.
    """
    try:
        found = importlib.util.find_spec(name) if name.isidentifier() else None
    except (ImportError, ValueError):
        return []
    if found is None or not found.origin or not found.submodule_search_locations:
        return []  # not installed, a single file, or a namespace of several folders
    folder = Path(found.origin).resolve().parent
    return [path for path in (folder, folder.with_name(f"{name}.libs")) if path.is_dir()] if folder.name == name else []


def environment(home: str) -> dict[str, str]:
    """Return the environment variables of programs. The hash seed is fixed, so that a second run gives the same verdict."""
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
