"""Where the bubble returns on a large cluster, and what removes it: the second table of docs/planning.md, made by `make planning`.

The split that was found for a cluster, simulated again with one thing changed at a time. Nothing is searched: what a row shows is that
change alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlcore_plugin_plan.advice import MOST_SLICED_REQUESTS
from rlcore_plugin_plan.simulated import Scenario, Workload, simulate

__all__ = ["CHANGES", "bubble_rows", "bubble_table", "found_split"]

LORA_GB = 0.16
"""Adapters of rank 32 on all linear layers of the 7B model, 80 million weights, in bf16."""
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "as above: `vllm_nccl`": {},
    "`object_store`, which `auto` takes": {"transport": "object_store"},
    "`object_store`, engines in processes of their own": {"transport": "object_store", "engine_process": "own"},
    "`collective` (gloo)": {"transport": "collective"},
    "weights of four times the size": {"weights_gb": 60.8},
    "`--max-staleness 1`": {"max_staleness": 1},
    "`--max-staleness 4`": {"max_staleness": 4},
    "a batch of twice the size": {"batch": 2},
    "adapters alone (`--lora-rank 32`), `object_store`": {"weights_gb": LORA_GB, "transport": "object_store"},
    "a copy at 50 GB/s (planned: pinned, more threads)": {"copy_bandwidth": 50.0},
    "`direct` (planned): no copy": {"transport": "direct"},
}
"""What is changed, by how a row names it: settings of [weights], ``max_staleness``, ``batch`` as a factor."""
UPDATES = 20


def found_split(row: Mapping[str, Any], transport: str) -> Scenario:
    """The zero-bubble split of a row of the first table."""
    way = row["zero_bubble"]
    return Scenario(
        workload=Workload.model_validate({"group": {"train_batch_size": way["train_batch_size"]}, "weights": {"transport": transport}}),
        producers=way["producers"],
        trainers=way["trainers"],
        max_staleness=way["max_staleness"],
        buffer_limit=way["buffer_limit"],
        in_flight=way["in_flight"],
        updates=UPDATES,
    )


def bubble_rows(found: Scenario) -> dict[str, dict[str, float]]:
    """The figures of each change."""
    return {name: _figures(_changed(found, change)) for name, change in CHANGES.items()}


def _changed(found: Scenario, change: Mapping[str, Any]) -> Scenario:
    settings = {name: value for name, value in change.items() if name not in ("max_staleness", "batch")}
    weights = found.workload.weights.model_copy(update=settings)
    factor, staleness = change.get("batch", 1), min(found.max_staleness, change.get("max_staleness", found.max_staleness))
    return replace(
        found,
        workload=found.workload.model_copy(update={"weights": weights}),
        max_staleness=staleness,
        train_batch_size=found.batch * factor,
        buffer_limit=found.buffer * factor,
        warm_up=4 + 2 * staleness,
    )


def _figures(scenario: Scenario) -> dict[str, float]:
    figures = simulate(scenario.sliced(MOST_SLICED_REQUESTS)[0])
    return {
        "bubble": round(figures.bubble, 4),
        "publishing": round(figures.publishing, 4),
        "taking": round(figures.taking, 4),
        "update_seconds": round(1 / figures.updates_per_second, 3),
        "staleness_mean": round(figures.staleness_mean, 2),
    }


def bubble_table(clusters: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Markdown: a row a change, a cell a cluster."""
    headings = ["", *(f"{int(devices):,} devices" for devices in clusters)]
    lines = [headings, ["---", *["---:"] * len(clusters)]]
    for name in CHANGES:
        lines.append([name, *(_cell(rows[name]) for rows in clusters.values())])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(row: Mapping[str, float]) -> str:
    shares = " / ".join(f"{100 * row[share]:.0f}" for share in ("bubble", "publishing", "taking"))
    return f"{shares} %, {row['update_seconds']:.1f} s"
