"""The memory that readers map: all of it is there, it cannot shrink under them, and nobody but the owner writes to it."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rlcore_plugin_processes.shared_wire import SharedMemory

SIZE = 1 << 20


@pytest.fixture
def buffer() -> Iterator[SharedMemory]:
    made = SharedMemory(SIZE)
    yield made
    made.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_all_memory_is_taken_before_anybody_touches_it(buffer: SharedMemory) -> None:
    assert os.fstat(buffer.descriptor).st_blocks * 512 >= SIZE


@pytest.mark.parametrize("size", [0, 2 * SIZE])
def test_it_keeps_its_size_whoever_has_the_descriptor(buffer: SharedMemory, size: int) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(buffer.descriptor, size)


def test_whoever_gets_the_descriptor_reads_what_the_owner_writes_and_cannot_write(buffer: SharedMemory) -> None:
    with pytest.raises(PermissionError):
        mmap.mmap(buffer.descriptor, buffer.size)
    with pytest.raises(PermissionError):
        os.write(buffer.descriptor, b"x")
    buffer.flat[7] = 42
    with mmap.mmap(buffer.descriptor, buffer.size, prot=mmap.PROT_READ) as seen:
        assert seen[7] == 42


def test_memory_that_cannot_be_had_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = descriptors()
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        SharedMemory(SIZE)
    assert descriptors() <= before
