"""`make bench-evaluation`: what evaluating while it trains costs the trainer of a run on Ray: the quickstart, evaluated every few updates.

Two runs of one machine differ by more than evaluations cost, so updates of one run are compared: those during which producers evaluated
with the others. ``cost``: what the former took longer than the median of the latter, of all the trainer's own seconds (those that are no
waiting). ``waiting``: the same of its seconds of waiting for data and weights, which evaluating makes longer, for the producers have more
to do, as a share of all seconds of the training. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rlcore_plugin_quickstart.assets import prepare

from rlcore.config import plan_run
from rlcore.registry.plugin_registry import Registry
from rlcore.runtime import run

WAITS = ("time/trainer/waiting_for_data", "time/trainer/waiting_for_weights")
WARM = 5
"""Updates at the beginning that are left out."""


def main() -> None:
    """Train, then print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--interval", type=int, default=20, help="updates between evaluations (20: the quickstart's)")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    found = []
    with tempfile.TemporaryDirectory() as name:
        assets = prepare(Path(name) / "quickstart", 0, lambda line: console.print(line))
        for number in range(arguments.rounds):
            values: Mapping[str, Any] = {
                "run": {"max_steps": arguments.steps, "run_dir": str(Path(name) / "runs"), "runtime": "ray"},
                "schedule": {"max_staleness": 2},
                "eval": {"eval_interval": arguments.interval},
            }
            summary = run(plan_run([assets.run_toml], {}, Registry.discover(), overrides=values))
            lines = (summary.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            found.append(cost_of([json.loads(line) for line in lines]))
            console.print(f"round {number + 1}: {found[-1]}")
    medians = {key: statistics.median(one[key] for one in found) for key in found[0]}
    print(json.dumps({"steps": arguments.steps, "interval": arguments.interval, "rounds": found, **medians, "cores": os.cpu_count()}))


def cost_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of the rows of ``metrics.jsonl`` in the order in which they were written: an evaluation's stands behind the updates beside it."""
    beside: set[int] = set()
    for place, row in enumerate(rows):
        if "seconds" not in row:
            written = [one["step"] for one in rows[:place] if "seconds" in one]
            beside |= set(range(row["step"] + 1, max(written, default=0) + 1))
    updates = [row for row in rows if "seconds" in row and row["step"] > WARM]
    seconds = sum(row["seconds"] for row in updates)
    own = {
        row["step"]: sum(value for name, value in row.items() if name.startswith("time/trainer/") and name not in WAITS) for row in updates
    }
    waits = {row["step"]: sum(row[name] for name in WAITS) for row in updates}
    return {
        "cost": _excess(own, beside) / sum(own.values()),
        "waiting": _excess(waits, beside) / seconds,
        "beside": float(len(beside & own.keys())),
        "own": statistics.median(own.values()),
    }


def _excess(spent: Mapping[int, float], beside: set[int]) -> float:
    usual = statistics.median(value for step, value in spent.items() if step not in beside)
    return sum(value - usual for step, value in spent.items() if step in beside)


if __name__ == "__main__":
    main()
