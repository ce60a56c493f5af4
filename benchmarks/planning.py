"""`make planning`: the table and the plot of docs/planning.md, by simulation. The last line is one JSON object.

For each number of devices, the default workload of ``rlcore plan`` with a batch that grows with the cluster. What was simulated is kept in
benchmarks/results/planning.json, so ``--devices 8`` renews one row; ``--devices`` without a number only draws again.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import time
from pathlib import Path
from typing import Any

from rlcore_plugin_plan.advice import advise
from rlcore_plugin_plan.simulated import Workload

from benchmarks.planning_plot import bars

ROOT = Path(__file__).parents[1]
RESULTS, PAGE, PLOT = ROOT / "benchmarks/results/planning.json", ROOT / "docs/planning.md", ROOT / "docs/planning.svg"
BATCHES = {8: 128, 128: 512, 1024: 1024, 16384: 4096}
WAYS = {"zero_bubble": "zero bubble", "colocated": "synchronous, colocated", "synchronous": "synchronous, split"}
UPDATES = 20
SEED = 0


def main() -> None:
    """Simulate, keep, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, nargs="*", choices=BATCHES, default=list(BATCHES), help="which rows to simulate (all)")
    args = parser.parse_args()
    gc.disable()  # millions of small objects and no cycles among them
    rows: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for devices in args.devices:
        rows[str(devices)] = _row(devices)
        RESULTS.write_text(json.dumps(dict(sorted(rows.items(), key=lambda row: int(row[0]))), indent=1) + "\n", encoding="utf-8")
    if rows:
        _write(rows)
    print(json.dumps({size: row["speedup_over_sync"] for size, row in rows.items()}))


def _row(devices: int) -> dict[str, Any]:
    workload = Workload.model_validate({"group": {"train_batch_size": BATCHES[devices]}})
    started = time.process_time()
    advice = advise(workload, devices, updates=UPDATES, seed=SEED, say=lambda line: print(f"{devices} devices: {line}", flush=True))
    ways = {name: getattr(advice, name).as_json() for name in WAYS}
    return {
        "speedup_over_sync": round(advice.speedup, 3),
        "speedup_over_colocated": round(advice.zero_bubble.speed / advice.colocated.speed, 3),
        "flags": advice.flags,
        "cpu_seconds": round(time.process_time() - started),
        **ways,
    }


def _write(rows: dict[str, Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    block = re.compile(r"(<!-- table: benchmarks\.planning -->\n).*?(<!-- end -->)", re.DOTALL)
    PAGE.write_text(block.sub(lambda found: f"{found[1]}{_table(rows)}\n{found[2]}", text), encoding="utf-8")
    groups = {f"{int(size):,} devices": [row[name]["tokens_per_second"] / int(size) for name in WAYS] for size, row in rows.items()}
    PLOT.write_text(bars("Response tokens trained per second and device (simulated)", groups, list(WAYS.values())), encoding="utf-8")


def _table(rows: dict[str, Any]) -> str:
    headings = ["devices", "prompts an update", "", "producers : trainers", "staleness, buffer", "tokens/s per device", "s an update"]
    headings += ["trainers busy", "producers busy", "slots used"]
    lines = [headings, ["---:", "---:", "---", *["---:"] * 7]]
    for size, row in rows.items():
        lines += [_cells(int(size), row, name) for name in WAYS]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(devices: int, row: dict[str, Any], name: str) -> list[str]:
    way = row[name]
    first = name == next(iter(WAYS))
    split = f"{way['producers']} : {way['trainers']:g}" if not way["colocated"] else "in turns"
    ahead = f"{way['max_staleness']} (mean {way['staleness_mean']:.1f}), {way['buffer_limit']}" if way["max_staleness"] else "0"
    return [
        f"{devices:,}" if first else "",
        f"{way['train_batch_size']:,}" if first else "",
        WAYS[name],
        split,
        ahead,
        f"{way['tokens_per_second'] / devices:,.0f}",
        f"{1 / way['updates_per_second']:.1f}",
        *(f"{way[share]:.0%}" for share in ("trainer_busy", "producers_busy", "slot_use")),
    ]


if __name__ == "__main__":
    main()
