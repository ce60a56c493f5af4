"""A process that ends with the process that started it, whatever both are doing. Linux only."""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["exit_with_parent"]

_PR_SET_PDEATHSIG = 1


def exit_with_parent(pid: int) -> None:
    """Let the kernel kill this process when the thread that started it in process ``pid`` ends; SGLang's processes do the same for this
    one."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != pid:  # the process ended before the call
        os._exit(1)
