"""A process that ends with the one that started it, whatever both are doing. Linux."""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["exit_with_parent"]

_PR_SET_PDEATHSIG = 1


def exit_with_parent(pid: int) -> None:
    """The kernel kills this process when the thread of that process ends that started it; SGLang's processes do as much for this one."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != pid:  # it ended before
        os._exit(1)
