"""The number of threads for the numerical libraries of a process.

By default each library takes every core, without regard to other processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["cores", "limit_threads", "thread_variables", "threads_limited", "threads_of"]

_COUNTS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)


def cores(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of cores that this process may use, at least 1: its CPU affinity, limited by the CPU quota of its container.

    :param groups: the folder of its control group, version 2 or 1.
    """
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # no such file, or no limit: "max", or -1
            quota, period = map(int, " ".join((groups / name).read_text() for name in names).split())
            if quota > 0 and period > 0:
                mine = min(mine, max(1, quota // period))
    return mine


def threads_of(roles: int) -> int:
    """Return the number of threads for each of ``roles`` roles that compute at the same time.

    It is OMP_NUM_THREADS if that is a number, else an equal part of the cores, at least 1.
    """
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(given) if given.isdecimal() and int(given) else max(1, cores() // roles)


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables that limit every numerical library, and the tokenizers, to this number of threads."""
    return {**dict.fromkeys(_COUNTS, str(threads)), "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}


def limit_threads(threads: int) -> None:
    """Limit this process, and those that it starts, to this number of threads, including a torch that is already imported."""
    os.environ.update(thread_variables(threads))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


@contextmanager
def threads_limited(threads: int) -> Iterator[None]:
    """Apply ``limit_threads`` inside the context, and restore environment and torch afterwards."""
    before = {name: os.environ.get(name) for name in thread_variables(threads)}
    torch = sys.modules.get("torch")
    torch_before = torch.get_num_threads() if torch else 0
    limit_threads(threads)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        if torch:
            torch.set_num_threads(torch_before)
