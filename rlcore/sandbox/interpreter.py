"""The interpreter that programs run in: the one behind this process, without the packages installed beside it."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

__all__ = ["base", "environment", "executable", "library", "site_packages", "standard_library"]


def base() -> Path:
    """Where it is installed; not the virtual environment that this process may run in."""
    return Path(sys.base_prefix).resolve()


def executable() -> Path:
    """The program file itself."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def library() -> Path:
    """The folder of its standard library."""
    return Path(sysconfig.get_path("stdlib", vars={"base": str(base()), "installed_base": str(base())}))


def site_packages() -> list[Path]:
    """Folders of installed packages inside the library."""
    return [library() / name for name in ("site-packages", "dist-packages") if (library() / name).is_dir()]


def standard_library() -> list[str]:
    """What it needs and imports, by path, without the installed packages."""
    hidden = set(site_packages())
    shared = [str(path) for path in (base() / "lib").glob("*.so*")]
    return [str(path) for path in library().iterdir() if path not in hidden] + shared + [str(executable())]


def environment(home: str) -> dict[str, str]:
    """What programs find in their environment; hash seeds are fixed, so that a verdict can be had again."""
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
