"""Shared memory that a part left is told, and that of its neighbours is not."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from rlcore.testing.leftovers import Leftovers

pytestmark = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this machine has no /dev/shm")
LEAVES = "import mmap, sys\nwith open(sys.argv[1], 'w+b') as file:\n    file.truncate(4096)\n    kept = mmap.mmap(file.fileno(), 4096)\n"


@pytest.fixture
def place() -> Path:
    return Path(f"/dev/shm/rlcore-test-{os.getpid()}")


def told(leftovers: Leftovers) -> list[str]:
    return [line for line in leftovers.found() if "shared memory" in line]


def test_what_this_process_still_holds_is_told() -> None:
    leftovers = Leftovers()
    memory = SharedMemory(create=True, size=4096)
    try:
        assert told(leftovers) == [f"shared memory /dev/shm/{memory.name}"]
    finally:
        memory.close()
        memory.unlink()
    assert not told(leftovers)


def test_what_a_process_of_the_part_left_as_it_was_killed_is_told(place: Path) -> None:
    leftovers = Leftovers()
    part = subprocess.Popen([sys.executable, "-c", f"{LEAVES}print(flush=True); input()", place], stdin=-1, stdout=-1)
    try:
        assert part.stdout
        part.stdout.readline()
        leftovers.look()
        part.kill()
        part.communicate()
        assert told(leftovers) == [f"shared memory {place}"]
    finally:
        place.unlink(missing_ok=True)


def test_what_a_neighbour_left_is_not_told(place: Path) -> None:
    """Beside other tests whose processes are killed."""
    leftovers = Leftovers()
    try:
        place.write_bytes(b"left")
        assert not told(leftovers)
    finally:
        place.unlink()
