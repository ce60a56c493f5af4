"""The stranger's distribution (tests/stranger), installed as pip does, once for all tests that use it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlcore.testing import PluginFolder
from tests.made_once import made_once

__all__ = ["link_stranger", "stranger_site"]

STRANGER = Path(__file__).parent / "stranger"


def stranger_site(factory: pytest.TempPathFactory) -> Path:
    """The folder that pip installed it into; tests read it or put it on the import path, and write nothing there."""
    return made_once("stranger-site", _install, factory)


def _install(site: Path) -> None:
    """Build and install it into ``site``; nothing is downloaded."""
    copied = site.parent / f"{site.name}-source"  # pip builds beside the source
    shutil.copytree(STRANGER, copied, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"), dirs_exist_ok=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "--target", str(site), str(copied)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def link_stranger(site: Path, plugins: PluginFolder) -> None:
    """Have the commands of a RunTester, or a registry of the folder, find what lies in ``site``."""
    plugins.root.mkdir(parents=True, exist_ok=True)
    for path in site.iterdir():
        (plugins.root / path.name).symlink_to(path)
