"""`make bench-evaluation`: what evaluating while it trains costs a run on Ray: the quickstart, with evaluations and without, in turns.

The trainer has a core of its own, and everybody else the others, as on machines where producers have devices of their own: else it is the
scheduler of the machine that is measured. ``own``: seconds of the trainer that are no waiting, an update; evaluating should leave them as
they are, since the producers do it. ``cpu``: seconds that its process computed, an update, from the first one on, which other work of the
machine hardly changes. ``waiting``: seconds an update in which it waits for data or weights, which evaluating makes longer, for the
producers have more to do. ``load``: of the machine. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rlcore_plugin_quickstart.assets import prepare

from rlcore.api.runs import RunRecord
from rlcore.config import plan_run
from rlcore.host.registry import Registry
from rlcore.runtime import run

WAITS = ("waiting_for_data", "waiting_for_weights")


def main() -> None:
    """Run both ways in turns, then print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--interval", type=int, default=20, help="updates between evaluations (20: the quickstart's)")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    seen: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as name:
        assets = prepare(Path(name) / "quickstart", 0, lambda line: console.print(line))
        for number in range(arguments.rounds):
            for way, of_way in seen.items():
                interval = arguments.interval if way == "with" else 0
                of_way.append(measured(assets.run_toml, Path(name) / "runs", arguments.steps, interval))
                console.print(f"round {number + 1}, {way}: {of_way[-1]}")
    found = {way: {key: statistics.median(one[key] for one in of_way) for key in of_way[0]} for way, of_way in seen.items()}
    ratios = [after["own"] / before["own"] for before, after in zip(seen["without"], seen["with"], strict=True)]
    console.print(table(found))
    cpu = statistics.median(after["cpu"] / before["cpu"] for before, after in zip(seen["without"], seen["with"], strict=True))
    ratio = {"own": statistics.median(ratios), "cpu": cpu, "waiting": found["with"]["waiting"] / max(found["without"]["waiting"], 1e-9)}
    shape = {"steps": arguments.steps, "rounds": arguments.rounds, "interval": arguments.interval}
    print(json.dumps({**shape, "ways": found, "ratio": ratio, "ratios": ratios, "cores": os.cpu_count()}))


def measured(toml: Path, runs: Path, steps: int, interval: int) -> dict[str, float]:
    """Seconds an update of the trainer, its own and its waiting, evaluations while it trains alone: first and last are outside."""
    values: Mapping[str, Any] = {
        "run": {"max_steps": steps, "run_dir": str(runs), "runtime": "ray"},
        "schedule": {"max_staleness": 2},
        "eval": {"eval_interval": interval},
    }
    with trainer_apart() as spent_cpu:
        summary = run(plan_run([toml], {}, Registry.discover(), overrides=values))
    updates = RunRecord(summary.run).updates()
    spent = {name: sum(row[name] for row in updates) for name in updates[-1] if name.startswith("time/trainer/")}
    waits = sum(spent[f"time/trainer/{name}"] for name in WAITS)
    return {
        "cpu": spent_cpu() / len(updates),
        "own": (sum(spent.values()) - waits) / len(updates),
        "waiting": waits / len(updates),
        "seconds": sum(row["seconds"] for row in updates) / len(updates),
        "load": os.getloadavg()[0],
    }


@contextmanager
def trainer_apart() -> Iterator[Callable[[], float]]:
    """Inside, Ray's worker that trains runs on the first core, and its other workers and this process on the others. What it gives says how
    many seconds that worker has computed since its first update."""
    ended = threading.Event()
    seconds: list[float] = []
    cores = sorted(os.sched_getaffinity(0))

    def look() -> None:
        while not ended.wait(0.2):
            for folder in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    title = (folder / "cmdline").read_bytes()
                    if title.startswith(b"ray::"):
                        if title.startswith(b"ray::TrainerHost.train"):
                            seconds[:] = [*seconds[:1], _cpu_seconds(folder)]
                        for thread in (folder / "task").iterdir():
                            os.sched_setaffinity(int(thread.name), cores[:1] if title.startswith(b"ray::TrainerHost") else cores[1:])

    looking = threading.Thread(target=look, daemon=True)
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[1:])
        looking.start()
    try:
        yield lambda: seconds[-1] - seconds[0]
    finally:
        ended.set()
        os.sched_setaffinity(0, cores)


def _cpu_seconds(process: Path) -> float:
    user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def table(found: Mapping[str, Mapping[str, float]]) -> Table:
    """A row a way."""
    made = Table("evaluations", "s/update of its own", "computing", "waiting", "s/update", "load")
    for way, figures in found.items():
        made.add_row(way, *(f"{figures[key]:.4f}" for key in ("own", "cpu", "waiting", "seconds", "load")))
    return made


if __name__ == "__main__":
    main()
