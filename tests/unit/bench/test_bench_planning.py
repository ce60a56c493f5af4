"""`make planning` without its simulations of large clusters: the page holds the tables of what was simulated last, and a row of the second
changes one thing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from rlcore_plugin_tools.plan.simulated import Scenario, Workload

from benchmarks.bubble import CHANGES, _changed, bubble_rows, bubble_table, found_split
from benchmarks.planning import BUBBLE, PAGE, RESULTS, planning_table, transport

ROW = {"zero_bubble": {"train_batch_size": 16, "producers": 3, "trainers": 6, "max_staleness": 8, "buffer_limit": 64}}


@pytest.mark.parametrize(("name", "kept", "made"), [("planning", RESULTS, planning_table), ("bubble", BUBBLE, bubble_table)])
def test_the_page_holds_what_was_simulated_last(name: str, kept: Any, made: Any) -> None:
    block = PAGE.read_text(encoding="utf-8").partition(f"<!-- table: benchmarks.{name} -->")[2].partition("<!-- end -->")[0]
    assert block.strip() == made(json.loads(kept.read_text(encoding="utf-8")))


def test_what_was_simulated_was_simulated_with_todays_rates() -> None:
    """A rate that was changed without `make planning` would leave the tables of the page behind."""
    for devices, row in json.loads(RESULTS.read_text(encoding="utf-8")).items():
        scenario, way = found_split(row, transport(int(devices))), row["zero_bubble"]
        stall = scenario.weight_update.stall + scenario.workload.overheads.publish_seconds
        assert way["publishing"] == pytest.approx(stall * way["updates_per_second"], rel=0.01)


def test_on_one_node_a_run_takes_what_it_takes_by_itself() -> None:
    assert [transport(devices) for devices in (8, 9)] == ["auto", "vllm_nccl"]


def test_a_row_of_the_bubble_changes_one_thing() -> None:
    found = found_split(ROW, "vllm_nccl")
    same = _changed(found, {})
    assert same == replace(found, train_batch_size=16, warm_up=4 + 2 * 8)
    assert _changed(found, {"batch": 2}).batch == 32
    assert _changed(found, {"batch": 2}).buffer == 128
    assert _changed(found, {"max_staleness": 1}).max_staleness == 1
    assert _changed(found, {"max_staleness": 16}).max_staleness == 8  # it takes staleness away, and gives none
    assert _changed(found, {"transport": "direct"}).workload.weights.transport == "direct"


def test_the_bubble_of_a_small_cluster() -> None:
    small = Scenario(
        workload=Workload.model_validate({"group": {"train_batch_size": 16, "response_sigma": 0.0}, "weights": {"transport": "vllm_nccl"}}),
        producers=3,
        trainers=6,
        max_staleness=8,
        buffer_limit=64,
        updates=5,
    )
    rows = bubble_rows(small)
    assert rows.keys() == CHANGES.keys()
    first, planned = rows["as above: `vllm_nccl`"], rows["`direct` (planned): no copy"]
    assert planned["publishing"] < first["publishing"] <= first["bubble"]
    assert planned["tokens_per_second"] > first["tokens_per_second"]
    assert all(row["producers"] + row["trainers"] == 9 for row in rows.values())
    assert bubble_table({"9": rows}).splitlines()[2].startswith("| as above: `vllm_nccl` | ")
