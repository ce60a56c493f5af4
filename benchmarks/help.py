"""`make bench-help`: CPU seconds of `rlcore --help` and of a bare Python, a process each, in turn. The last line is one JSON object."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

RUNS = 11
COMMANDS = {"help": [Path(sys.executable).parent / "rlcore", "--help"], "python": [sys.executable, "-c", "pass"]}


def cpu_seconds(name: str) -> float:
    """User and system time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(COMMANDS[name], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    cpu_seconds("help")  # the first one keeps the list of commands
    rounds = [{name: cpu_seconds(name) for name in COMMANDS} for _ in range(RUNS)]
    found = {}
    for name in COMMANDS:
        figures = [one[name] for one in rounds]
        spread = {"min": min(figures), "median": statistics.median(figures), "max": max(figures)}
        found[f"{name}_cpu_seconds"] = {of: round(value, 4) for of, value in spread.items()}
    ratio = statistics.median(one["help"] for one in rounds) / statistics.median(one["python"] for one in rounds)
    print(json.dumps({**found, "ratio": round(ratio, 2), "runs": RUNS}))
