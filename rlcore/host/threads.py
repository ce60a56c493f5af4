"""How many threads the numerical libraries of a process may use: each library alone would take every core, beside all other processes."""

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
    """Return the number of cores that this process may use, at least 1: those that it may run on, and no more than its container has the
    time of (``groups``: where its control group is seen, of version 2 or 1)."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # no such file, or no limit: "max", or -1
            quota, period = map(int, " ".join((groups / name).read_text() for name in names).split())
            if quota > 0 and period > 0:
                mine = min(mine, max(1, quota // period))
    return mine


def threads_of(roles: int) -> int:
    """Return the threads of one of so many roles that compute at the same time: OMP_NUM_THREADS if it is a number, else an equal part of
    the cores, at least 1."""
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(given) if given.isdecimal() and int(given) else max(1, cores() // roles)


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables that give every numerical library, and the tokenizers, so many threads."""
    return {**dict.fromkeys(_COUNTS, str(threads)), "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}


def limit_threads(threads: int) -> None:
    """Give this process, and those that it starts, so many threads; a torch that is already imported too."""
    os.environ.update(thread_variables(threads))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


@contextmanager
def threads_limited(threads: int) -> Iterator[None]:
    """``limit_threads`` inside; environment and torch are as before on leaving."""
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
