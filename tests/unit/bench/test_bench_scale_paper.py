"""`make bench-scale-paper`: the tables of docs/explanation/scale.md are its output, and the arithmetic of it by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from benchmarks import scale_measured
from benchmarks.scale_measured import MeasuredParts, metadata_bytes, one_group
from benchmarks.scale_paper import PAGE, FoundCluster, blocks, demands, failures, found_clusters, kept_parts, main

PARTS = MeasuredParts(
    rollout_bytes=40_000,
    unpack_seconds=1e-5,
    log_bytes=4000,
    log_seconds=1e-3,
    metadata_bytes=300,
    groups=300,
    groups_by_128=10_000,
    calls=1000,
)
WAY = {"producers": 240, "trainers": 784, "max_staleness": 10, "buffer_limit": 4096, "in_flight": 50, "train_batch_size": 1000}
CLUSTER = FoundCluster(devices=1024, row={"zero_bubble": {**WAY, "updates_per_second": 0.1, "groups_per_second": 100.0}})


def asked(part: str) -> tuple[float, float]:
    demand = next(one for one in demands(CLUSTER, PARTS) if one.part == part)
    return demand.asked, demand.has


@pytest.mark.parametrize("name", ["asked", "failures"])
def test_the_page_holds_what_the_command_prints(name: str) -> None:
    block = PAGE.read_text(encoding="utf-8").partition(f"<!-- scale: {name} -->")[2].partition("<!-- end -->")[0]
    assert block.strip() == blocks()[name]


@pytest.mark.parametrize(
    ("part", "number", "has"),
    [
        ("driver: write every rollout", 16.0, 10.0),
        ("network of a trainer's node: rollouts", 0.064, 25.0),
        ("store of a producer's node: rollouts", 0.064 * 98 / 30, 3.2),
        ("memory of a trainer's node: batches", 0.64 * 3 * 8, 2000.0),
        ("coordinator: groups, one a call", 100.0, 300.0),
        ("coordinator: metadata", 0.03, 25_000.0),
        ("driver: calls and answers", (1024 + 60) / 12 + (3 * 784 + 1000 + 240 + 2 * 60) / 10, 1000.0),
        ("file system: checkpoints", 7.6 * 12, 600.0),
        ("Ray: actors", 1024 + 60 + 2, 10_000.0),
        ("Ray: nodes", 128, 250.0),
    ],
)
def test_what_is_asked_of_a_part(part: str, number: float, has: float) -> None:
    assert asked(part) == pytest.approx((number, has))


def test_weights_are_asked_for_what_rlcore_plan_charges() -> None:
    assert asked("trainers: gather and copy the weights") == (CLUSTER.weights().stall, 10.0)
    assert asked("weights, if sent by `object_store`") == (CLUSTER.weights("object_store").sending, 100.0)


def test_the_tightest_part_comes_first_and_a_slower_machine_is_tighter() -> None:
    shares = [one.share for one in demands(CLUSTER, PARTS)]
    assert shares == sorted(shares, reverse=True)
    slower = {one.part: one.share for one in demands(CLUSTER, replace(PARTS, log_seconds=2e-3, groups=100))}
    assert all(slower[one.part] >= one.share for one in demands(CLUSTER, PARTS))


def test_as_many_fail_as_llama_3_reports() -> None:
    """419 interruptions of 16,384 devices in 54 days are 7.76 a day; a sixteenth of the devices has a sixteenth of them."""
    one = failures(CLUSTER)
    assert sum(row.often for row in one) == pytest.approx(419 / 54 / 16)
    assert one[0].seconds == 300 + 120
    assert one[0].share == pytest.approx(419 / 54 * (784 - 8) / 16384 * 420 / 86400)
    assert one[1].seconds * 240 == pytest.approx(120)


def test_the_parts_are_measured_on_real_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_measured, "with_ray", lambda: (300.0, 10_000.0, 1000.0))
    monkeypatch.setattr(scale_measured, "_REPEATS", 1)
    measured = scale_measured.measured_parts()
    tokens = 4 * 512 + 13 * 2048
    assert tokens + 4 * 2048 < measured["rollout_bytes"] < tokens + 4 * 2048 + 500
    assert measured["log_bytes"] < measured["rollout_bytes"] / 4
    assert 100 < metadata_bytes() < 1000
    assert len(one_group().rollouts) == 16


def test_the_last_line_says_which_part_gives_first(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    line: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    for cluster in found_clusters():
        said = line[str(cluster.devices)]
        assert said["first"] == demands(cluster, kept_parts())[0].part
        assert said["gives"] == [one.part for one in demands(cluster, kept_parts()) if one.share >= 1]
