"""What the C library does with memory that the process has freed."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
_KEPT = 1 << 30
"""Bytes that stay with the process if they are free at the end of its heap."""
_LARGEST = 32 << 20
"""Bytes of the largest block that comes from the heap; glibc takes no more for this threshold."""


def keep_freed_memory() -> None:
    """Keep up to a gigabyte of freed memory in this process, so that the next step's tensors find it.

    By default glibc returns the end of its heap to the system as soon as a few megabytes of it are free, and every tensor that is made
    after that takes a fault for each of its pages: a tenth of an update of a small model. Nothing with another C library, or if a variable
    of the environment (``MALLOC_...``, ``GLIBC_TUNABLES``) says what its user wants.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    with suppress(OSError, AttributeError, TypeError):  # no library of that kind, or none that has mallopt
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST)
