"""`make planning`: the tables and the plot of docs/explanation/bubble.md, by simulation. The last line is one JSON object.

For each number of devices, the default workload of ``rlcore plan`` with a batch that grows with the cluster; then, for those of more than
one node, the split that was found with one thing changed at a time (``bubble``). What was simulated is kept in benchmarks/results, so
``--devices 8`` renews one row; ``--devices`` without a number only draws again.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import time
from pathlib import Path
from typing import Any

from rlcore_plugin_tools.plan.advice import advise
from rlcore_plugin_tools.plan.simulated import Workload

from benchmarks.bubble import bubble_rows, bubble_table, found_split
from benchmarks.planning_plot import bars

ROOT = Path(__file__).parents[1]
RESULTS, BUBBLE = ROOT / "benchmarks/results/planning.json", ROOT / "benchmarks/results/bubble.json"
PAGE, PLOT = ROOT / "docs/explanation/bubble.md", ROOT / "docs/explanation/planning.svg"
BATCHES = {8: 128, 128: 512, 1024: 1024, 16384: 4096}
WAYS = {"zero_bubble": "zero bubble", "colocated": "synchronous, colocated", "synchronous": "synchronous, split"}
UPDATES = 20
SEED = 0
Rows = dict[str, Any]


def transport(devices: int) -> str:
    """On one node what a run takes by itself, on several the engine's own, which a run is told to take."""
    return "auto" if devices <= Workload().weights.devices_per_node else "vllm_nccl"


def main() -> None:
    """Simulate, keep, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bubble", action="store_true", help="simulate where the bubble returns alone")
    parser.add_argument("--devices", type=int, nargs="*", choices=BATCHES, default=list(BATCHES), help="which rows to simulate (all)")
    args = parser.parse_args()
    gc.disable()  # millions of small objects and no cycles among them
    rows, bubbles = _kept(RESULTS), _kept(BUBBLE)
    for devices in [] if args.bubble else args.devices:
        rows[str(devices)] = _row(devices)
        _keep(RESULTS, rows)
    for devices in args.devices:
        if transport(devices) != "auto":
            print(f"{devices} devices: where the bubble returns", flush=True)
            bubbles[str(devices)] = bubble_rows(found_split(rows[str(devices)], transport(devices)))
            _keep(BUBBLE, bubbles)
    if rows:
        _write(rows, bubbles)
    print(json.dumps({size: row["speedup_over_sync"] for size, row in rows.items()}))


def _kept(path: Path) -> Rows:
    rows: Rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return rows


def _keep(path: Path, rows: Rows) -> None:
    path.write_text(json.dumps(dict(sorted(rows.items(), key=lambda row: int(row[0]))), indent=1) + "\n", encoding="utf-8")


def _row(devices: int) -> Rows:
    workload = Workload.model_validate({"group": {"train_batch_size": BATCHES[devices]}, "weights": {"transport": transport(devices)}})
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


def _write(rows: Rows, bubbles: Rows) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("planning", planning_table(rows)), ("bubble", bubble_table(bubbles))):
        block = re.compile(rf"(<!-- table: benchmarks\.{name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = block.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)  # type: ignore[misc]
    PAGE.write_text(text, encoding="utf-8")
    groups = {f"{int(size):,} devices": [row[name]["tokens_per_second"] / int(size) for name in WAYS] for size, row in rows.items()}
    PLOT.write_text(bars("Response tokens trained per second and device (simulated)", groups, list(WAYS.values())), encoding="utf-8")


def planning_table(rows: Rows) -> str:
    """Markdown: three rows a cluster."""
    headings = ["devices", "prompts an update", "", "producers : trainers", "staleness, buffer", "tokens/s per device", "s an update"]
    headings += ["trainers busy", "stalled by weights", "producers busy", "slots used"]
    lines = [headings, ["---:", "---:", "---", *["---:"] * 8]]
    for size, row in rows.items():
        lines += [_cells(int(size), row, name) for name in WAYS]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(devices: int, row: Rows, name: str) -> list[str]:
    way = row[name]
    first = name == next(iter(WAYS))
    split = f"{way['producers']} : {way['trainers']:g}" if not way["colocated"] else "alternating"
    ahead = f"{way['max_staleness']} (mean {way['staleness_mean']:.1f}), {way['buffer_limit']}" if way["max_staleness"] else "0"
    return [
        f"{devices:,}" if first else "",
        f"{way['train_batch_size']:,}" if first else "",
        WAYS[name],
        split,
        ahead,
        f"{way['tokens_per_second'] / devices:,.0f}",
        f"{1 / way['updates_per_second']:.1f}",
        *(f"{way[share]:.0%}" for share in ("trainer_busy", "publishing", "producers_busy", "slot_use")),
    ]


if __name__ == "__main__":
    main()
