"""`make bench-help`: CPU seconds of `rlcore --help`, a process each. The last line is one JSON object."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys

RUNS = 11


def cpu_seconds() -> float:
    """User and system time of one process that prints the help."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "rlcore", "--help"], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    figures = [cpu_seconds() for _ in range(RUNS)]
    spread = {"min": min(figures), "median": statistics.median(figures), "max": max(figures)}
    print(json.dumps({"help_cpu_seconds": {name: round(value, 4) for name, value in spread.items()}, "runs": RUNS}))
