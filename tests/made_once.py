"""A folder that all processes of one call of pytest share, and one of them makes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(name: str, make: Callable[[Path], object], factory: pytest.TempPathFactory) -> Path:
    """The folder ``name``, which ``make(folder)`` makes for the first process that asks; those that ask meanwhile wait for it."""
    here = factory.getbasetemp()
    place = here.parent if "PYTEST_XDIST_WORKER" in os.environ else here  # that of all workers of this call of pytest
    folder, done = place / name, place / f"{name}.made"
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make(folder)
            done.touch()
    return folder
