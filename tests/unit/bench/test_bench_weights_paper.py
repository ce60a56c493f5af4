"""`make bench-weights-paper`: the arithmetic, and the table of docs/explanation/bubble.md is its output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rlcore_plugin_tools.plan.simulated import Scenario, Workload
from rlcore_plugin_tools.plan.workload_model import TransferSection

from benchmarks.weights_paper import END, PAGE, START, Fleet, main, table, ways


def test_the_page_holds_what_the_command_prints() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.partition(START)[2].partition(END)[0].strip() == table(Fleet())


def test_a_version_of_32_billion_weights_in_bfloat16_is_64_gb_and_a_broadcast_carries_it_once() -> None:
    assert Fleet().weights == 64.0
    sent = {way.update.transport: way.update.sent_gb for way in ways(Fleet())}
    assert sent == {"shared": 0, "object_store": 8 * 64, "collective": 5 * 64, "vllm_nccl": 64, "direct": 64, "ipc": 0}


def test_the_seconds_are_those_that_the_plan_charges() -> None:
    """One arithmetic: the same fleet as a workload of rlcore plan."""
    tables = {"generation": {"producer_devices": 4}, "weights": {"weights_gb": 64.0, "transport": "object_store"}}
    scenario = Scenario(workload=Workload.model_validate(tables), producers=16, trainers=32)
    assert scenario.weight_update == next(way.update for way in ways(Fleet()) if way.update.transport == "object_store")


@pytest.mark.parametrize("change", [{"billions": 64.0}, {"rates": TransferSection(network_bandwidth=12.0)}, {"engines": 32}])
def test_more_to_move_or_less_to_move_it_with_is_never_quicker(change: dict[str, Any]) -> None:
    for before, after in zip(ways(Fleet()), ways(Fleet(**change)), strict=True):
        assert after.update.whole >= before.update.whole
        assert after.update.sent_gb >= before.update.sent_gb


def test_the_last_line_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--billions", "7"])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(one["whole"] >= one["stall"] for one in line.values())
