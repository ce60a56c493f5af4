"""Small file systems of their own for tests of full and read-only disks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["fill", "mounted", "read_only", "remount", "writable"]


@contextmanager
def mounted(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system in memory of so many kilobytes at ``folder``; the test is skipped if this machine lets nobody mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        while os.path.ismount(folder):  # with a read-only one above it
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    """Change a mounted one: ``size=100k``."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def read_only(folder: Path) -> None:
    """Nothing below a folder of a mounted file system can be opened to be written any more, not by root either, until ``writable``. What
    is open stays so."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)


def writable(folder: Path) -> None:
    """Take ``read_only`` back."""
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leave: int = 0) -> Path:
    """Write a file ``ballast`` that leaves ``leave`` bytes free, in whole pages; returns it, to be removed again."""
    ballast = folder / "ballast"
    system = os.statvfs(folder)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, system.f_bavail * system.f_frsize - leave))
    return ballast
