"""``trace.json``: the activities of each worker over time, in the trace event format of Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlcore.api.commands import write_bytes

__all__ = ["MOST_SLICES", "TraceRow", "write_trace"]

TraceRow = tuple[str, str, str, float, float]
"""Worker, role, activity, start in seconds since 1970, duration in seconds."""
MOST_SLICES = 300_000
"""The maximum in one file, which is then about 30 MB."""
# Names of the viewer's palette. The viewer chooses the colour of other activities.
_COLOURS = {
    "training": "good",
    "generation": "good",
    "log probabilities": "rail_response",
    "evaluation": "rail_response",
    "weights": "rail_load",
    "waiting for data": "terrible",
    "waiting for weights": "terrible",
    "scoring": "bad",
    "waiting for environments": "bad",
    "waiting for tools": "bad",
    "back-pressure": "grey",
}


def write_trace(path: Path, rows: Iterable[TraceRow]) -> None:
    """Write the rows completely or not at all.

    A role becomes a process, a worker a thread, and a row a slice, in microseconds since the first row. Rows of one worker must not
    overlap. If there are more than ``MOST_SLICES`` rows, the shortest are left out; ``otherData`` has their number.
    """
    kept = list(rows)
    left_out = max(0, len(kept) - MOST_SLICES)
    if left_out:
        kept = sorted(kept, key=lambda row: row[4])[left_out:]
    kept.sort(key=lambda row: (row[1], row[0], row[3]))
    origin = min((start for _, _, _, start, _ in kept), default=0.0)
    pids = {role: number for number, role in enumerate(dict.fromkeys(row[1] for row in kept), start=1)}
    tids = {worker: number for number, worker in enumerate(dict.fromkeys((row[1], row[0]) for row in kept), start=1)}
    events = [_named("process_name", role, pid) for role, pid in pids.items()]
    events += [_named("thread_name", worker, pids[role], tid) for (role, worker), tid in tids.items()]
    ends = dict.fromkeys(tids.values(), 0)
    for row in kept:
        tid = tids[row[1], row[0]]
        event = _slice(row, origin, pids[row[1]], tid, ends[tid])
        ends[tid] = event["ts"] + event["dur"]
        events.append(event)
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"origin_seconds_since_1970": origin, "slices_left_out": left_out},
        "traceEvents": events,
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    write_bytes(path, f"{text}\n".encode())


def _named(kind: str, name: str, pid: int, tid: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}


def _slice(row: TraceRow, origin: float, pid: int, tid: int, earliest: int) -> dict[str, Any]:
    _, _, activity, start, seconds = row
    # Both ends are rounded instead of the length, so that touching slices still touch. Rounding must not make a slice overlap the previous
    # one.
    begins, ends = max(earliest, round((start - origin) * 1e6)), round((start + seconds - origin) * 1e6)
    event = {"ph": "X", "name": activity, "cat": "time", "pid": pid, "tid": tid, "ts": begins, "dur": max(0, ends - begins)}
    return {**event, "cname": _COLOURS[activity]} if activity in _COLOURS else event
