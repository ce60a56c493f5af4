"""Where the bubble returns on a large cluster, and what removes it: second table of docs/explanation/bubble.md, made by `make planning`.

The split that was found for a cluster, simulated again with one thing changed at a time; of some splits around it the best, for what one
role gains the other has to follow. Staleness and buffer stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlcore_plugin_tools.plan.advice import MOST_SLICED_REQUESTS
from rlcore_plugin_tools.plan.bounds import enough_updates
from rlcore_plugin_tools.plan.simulated import Scenario, Workload, simulate

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
_ODDS = (0.6, 0.8, 1.0, 1.3, 1.7, 2.4)
"""Producers for each trainer, as multiples of what was found."""


def found_split(row: Mapping[str, Any], transport: str) -> Scenario:
    """The zero-bubble split of a row of the first table."""
    way = row["zero_bubble"]
    return Scenario(
        workload=Workload.model_validate({"group": {"train_batch_size": way["train_batch_size"]}, "weights": {"transport": transport}}),
        producers=way["producers"],
        trainers=way["trainers"],
        max_staleness=way["max_staleness"],
        buffer_limit=way["buffer_limit"],
        updates=UPDATES,
    )


def bubble_rows(found: Scenario) -> dict[str, dict[str, float]]:
    """The figures of each change, on the best of the splits."""
    return {name: _best(_changed(found, change)) for name, change in CHANGES.items()}


def _best(scenario: Scenario) -> dict[str, float]:
    devices, odds = scenario.producers + scenario.trainers, scenario.producers / scenario.trainers
    trainers = sorted({round(devices / (1 + odds * factor)) for factor in _ODDS})
    splits = [replace(scenario, producers=devices - few, trainers=few) for few in trainers]
    return max((_figures(split) for split in splits), key=lambda figures: figures["tokens_per_second"])


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
    small = scenario.sliced(MOST_SLICED_REQUESTS)[0]
    figures = simulate(replace(small, updates=enough_updates(scenario, small.updates)))
    return {
        "producers": scenario.producers,
        "trainers": scenario.trainers,
        "tokens_per_second": round(figures.tokens_per_second * scenario.batch / small.batch),
        "bubble": round(figures.bubble, 4),
        "publishing": round(figures.publishing, 4),
        "taking": round(figures.taking, 4),
        "staleness_mean": round(figures.staleness_mean, 2),
    }


def bubble_table(clusters: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Markdown: a row a change, a cell a cluster."""
    lines = [["", *(f"{int(devices):,} devices" for devices in clusters)], ["---", *["---:"] * len(clusters)]]
    firsts = [next(iter(rows.values()))["tokens_per_second"] for rows in clusters.values()]
    for name in CHANGES:
        cells = zip((rows[name] for rows in clusters.values()), firsts, strict=True)
        lines.append([name, *(_cell(row, first) for row, first in cells)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(row: Mapping[str, float], first: float) -> str:
    shares = " / ".join(f"{100 * row[share]:.0f}" for share in ("bubble", "publishing", "taking"))
    return f"{row['tokens_per_second'] / first:.2f}; {shares} %"
