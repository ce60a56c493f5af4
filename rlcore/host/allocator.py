"""Settings of the C library's memory allocator."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
_KEPT = 1 << 30
"""Free bytes at the end of the heap that stay with the process."""
_LARGEST = 32 << 20
"""Bytes of the largest block that comes from the heap; glibc accepts no larger value for this threshold."""


def keep_freed_memory() -> None:
    """Keep up to a gigabyte of freed memory in this process, so that the tensors of the next step can reuse it.

    By default glibc returns the end of its heap to the system as soon as a few megabytes of it are free. Every tensor that is created later
    then causes a fault for each of its pages: a tenth of an update of a small model. The function does nothing with another C library, or
    if an environment variable (``MALLOC_...``, ``GLIBC_TUNABLES``) holds the user's own choice.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    with suppress(OSError, AttributeError, TypeError):  # not glibc, or a library without mallopt
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST)
