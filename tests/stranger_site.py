"""Installs the stranger's distribution (tests/stranger) as pip does, into a folder of a test."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from rlcore.testing import PluginFolder

__all__ = ["install_stranger", "link_stranger"]

STRANGER = Path(__file__).parent / "stranger"


def install_stranger(site: Path) -> Path:
    """Build and install it into ``site``, a folder that a test puts on the import path; nothing is downloaded. Returns ``site``."""
    copied = site.parent / f"{site.name}-source"  # pip builds beside the source
    shutil.copytree(STRANGER, copied, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "--target", str(site), str(copied)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return site


def link_stranger(site: Path, plugins: PluginFolder) -> None:
    """Have the commands of a RunTester, or a registry of the folder, find what lies in ``site``."""
    plugins.root.mkdir(parents=True, exist_ok=True)
    for path in site.iterdir():
        (plugins.root / path.name).symlink_to(path)
