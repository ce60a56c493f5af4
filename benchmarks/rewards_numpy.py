"""How long a program that imports numpy takes in the jail, from the call to the answer, on one core: one that says so, which finds numpy
imported, and one that hides it, which imports it itself, as every program did before."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rlcore.api import SandboxError
from rlcore.api.sandbox import Job, Level, Sandbox, SandboxOptions, open_sandbox

__all__ = ["measure"]

_SAYS = "import numpy as np\nprint(int(np.linalg.matrix_rank(np.eye(int(input())))))"
_HIDES = _SAYS.replace("import numpy as np", "np = __import__('num' + 'py')")
_NOTHING = "print(int(input()))"
_RUNS, _FIRST = 200, 5


def measure(level: Level) -> dict[str, float] | str:
    """Milliseconds a run (p50, p90) of each kind of program, and of one that imports nothing; or why there is no such level here."""
    with _one_core():
        try:
            sandbox = open_sandbox(SandboxOptions(level=level.value))  # type: ignore[arg-type]
        except SandboxError as error:
            return str(error)
        with sandbox:
            figures: dict[str, float] = {}
            for name, source in (("numpy", _SAYS), ("numpy_imported_by_itself", _HIDES), ("without", _NOTHING)):
                times = sorted([_timed(sandbox, source) for _ in range(_FIRST + _RUNS)][_FIRST:])
                figures |= {f"{name}_p50_ms": statistics.median(times), f"{name}_p90_ms": times[int(0.9 * len(times))]}
    return figures


def _timed(sandbox: Sandbox, source: str) -> float:
    started = time.perf_counter()
    ran = sandbox.run(Job(source=source, stdin=b"7\n"))
    assert ran.stdout == b"7\n", ran
    return 1e3 * (time.perf_counter() - started)


@contextmanager
def _one_core() -> Iterator[None]:
    """This process and all that it starts share one core inside."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
