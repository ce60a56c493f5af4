"""trace.json: the trace event format, one track a worker, no two slices of a track at the same time."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_tools.health import trace
from rlcore_plugin_tools.health.trace import TraceRow, write_trace

NOW = 1_767_225_600.25
ROWS: list[TraceRow] = [
    ("rank 1", "trainer", "training", NOW + 0.5, 0.25),
    ("p0", "producer", "generation", NOW, 0.7),
    ("p0", "producer", "weights", NOW + 0.7, 0.1),
    ("rank 0", "trainer", "training", NOW + 0.5, 0.25),
]


def written(tmp_path: Path, rows: list[TraceRow]) -> dict[str, Any]:
    write_trace(tmp_path / "trace.json", rows)
    document = json.loads((tmp_path / "trace.json").read_text())
    assert isinstance(document, dict)
    return document


def slices(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def test_every_worker_is_a_named_track_of_its_role(tmp_path: Path) -> None:
    events = written(tmp_path, ROWS)["traceEvents"]
    roles = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    workers = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert sorted(roles.values()) == ["producer", "trainer"]
    assert sorted((roles[pid], name) for (pid, _), name in workers.items()) == [
        ("producer", "p0"),
        ("trainer", "rank 0"),
        ("trainer", "rank 1"),
    ]
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} == set(workers)
    assert len({tid for _, tid in workers}) == len(workers)


def test_work_and_waiting_have_colours_of_their_own_and_what_is_unknown_has_none(tmp_path: Path) -> None:
    rows: list[TraceRow] = [
        ("w", "trainer", name, NOW + number, 1.0) for number, name in enumerate(("training", "waiting for data", "new"))
    ]
    assert [event.get("cname") for event in slices(written(tmp_path, rows))] == ["good", "terrible", None]


def test_slices_count_in_microseconds_from_the_first_one(tmp_path: Path) -> None:
    document = written(tmp_path, ROWS)
    assert document["otherData"] == {"origin_seconds_since_1970": NOW, "slices_left_out": 0}
    found = sorted((event["name"], event["ts"], event["dur"]) for event in slices(document))
    assert found == [
        ("generation", 0, 700_000),
        ("training", 500_000, 250_000),
        ("training", 500_000, 250_000),
        ("weights", 700_000, 100_000),
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.floats(0.0, 0.5), st.floats(1e-7, 100.0)), max_size=30))
def test_no_slices_of_a_track_overlap_and_their_sums_are_the_accounts(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[str, float, float]]
) -> None:
    rows: list[TraceRow] = []
    ends, booked = dict.fromkeys("ab", NOW), defaultdict(float)
    for worker, gap, seconds in spans:
        rows.append((worker, "producer", f"activity {len(rows) % 3}", ends[worker] + gap, seconds))
        ends[worker] += gap + seconds
        booked[rows[-1][2]] += seconds
    found = slices(written(tmp_path_factory.mktemp("trace"), rows))
    tracks, drawn = defaultdict(list), defaultdict(float)
    for event in found:
        tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        drawn[event["name"]] += event["dur"] / 1e6
    for track in tracks.values():
        assert all(one[1] <= other[0] for one, other in pairwise(sorted(track)))
    assert drawn == pytest.approx(booked, abs=2e-6 * (len(rows) + 1))


def test_rounding_to_microseconds_makes_no_slices_overlap(tmp_path: Path) -> None:
    rows: list[TraceRow] = [("p0", "producer", "generation", NOW, 0.0)]
    for seconds in np.random.default_rng(0).uniform(0.0, 0.01, 1000):
        rows.append(("p0", "producer", "generation", rows[-1][3] + rows[-1][4], float(seconds)))
    found = slices(written(tmp_path, rows))
    assert all(one["ts"] + one["dur"] <= other["ts"] for one, other in pairwise(found))


def test_of_too_many_rows_the_shortest_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_SLICES", 2)
    document = written(tmp_path, [("p0", "producer", "generation", NOW + 10 * n, 1.0 + n % 3) for n in range(4)])
    assert [event["dur"] for event in slices(document)] == [2_000_000, 3_000_000]
    assert document["otherData"]["slices_left_out"] == 2


def test_a_run_in_which_nothing_happened_has_an_empty_trace(tmp_path: Path) -> None:
    assert written(tmp_path, [])["traceEvents"] == []


def test_the_trace_of_a_long_run_keeps_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_SLICES", 3_000)
    rows = [(f"producer-{number % 64}", "producer", "generation", number // 64 * 2.0, 1.0 + number % 3 / 10) for number in range(4_000)]
    trace.write_trace(tmp_path / "trace.json", rows)
    assert (tmp_path / "trace.json").stat().st_size < 120 * 3_000
    document = json.loads((tmp_path / "trace.json").read_text())
    assert document["otherData"]["slices_left_out"] == 1_000
    assert sum(event["ph"] == "X" for event in document["traceEvents"]) == 3_000
