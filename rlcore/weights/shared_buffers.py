"""The memory of the shared transport: anonymous files that vanish with the last process that holds them; nothing in /dev/shm.

Two of them: one is written while receivers read the other. The owner writes; whoever gets the descriptor can only read.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from itertools import count

import numpy as np

__all__ = ["Buffer", "map_read_only"]

_SEAL_FUTURE_WRITE = 0x10
# Linux 5.1: mappings made from now on are read-only. Python has no name for it before 3.13.


class Buffer:
    """One anonymous file, mapped for writing here."""

    _numbers = count(1)

    def __init__(self, size: int) -> None:
        self.number = next(self._numbers)
        self.size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.descriptor = os.memfd_create("rlcore-weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            # All of it now: where there is not enough memory this is an error here, not the end of whoever touches a page.
            os.posix_fallocate(self.descriptor, 0, self.size)
            self.flat: np.ndarray = np.frombuffer(mmap.mmap(self.descriptor, self.size), np.uint8)
            # It must not shrink under a reader, who would be killed by SIGBUS.
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)
        except OSError:
            os.close(self.descriptor)
            raise

    def close(self) -> None:
        """Let go of it; the memory is free when the last receiver has let go too."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            self.flat = np.zeros(0, np.uint8)


def map_read_only(descriptor: int, size: int) -> np.ndarray:
    """uint8[size], read-only; the mapping lives as long as any view of it. Closes the descriptor."""
    try:
        return np.frombuffer(mmap.mmap(descriptor, size, prot=mmap.PROT_READ), np.uint8)
    finally:
        os.close(descriptor)
