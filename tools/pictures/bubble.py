"""Zero bubble against alternating: the same seconds of two runs, from their traces. ``measure`` makes the runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tools.pictures.svg import LARGE, SMALL, WIDTH, Picture

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "traces.json"
RUNS = {"0": "Alternating", "2": "Overlapping"}
"""``max_staleness`` of a run, and its name."""
FLAGS = ("--runtime", "local", "--max-steps", "30", "--eval-interval", "1000")
WARM_UP = 6
"""Updates before the shown seconds and the figures."""
WINDOW = 2.0
"""The seconds that are shown."""
LANES = ("producer", "trainer")
BUSY = {"producer": ("generation",), "trainer": ("training", "log probabilities")}
COLOURS = {
    "generation": "strong-blue",
    "scoring": "strong-green",
    "log probabilities": "strong-orange",
    "training": "strong-orange",
    "weights": "ink",
}
LEFT, RIGHT, LANE = 14.0, WIDTH - 14.0, 26.0

Slice = tuple[str, str, float, float]
"""Lane, activity, beginning and end in seconds."""


def measure() -> None:
    """Run the quickstart alternating and overlapping, in this environment, and write what is shown of their traces."""
    with TemporaryDirectory(prefix="rlcore-pictures-") as name:
        runs = {staleness: _measured(Path(name) / staleness, staleness) for staleness in RUNS}
    figures = {"command": f"rlcore quickstart --max-staleness N {' '.join(FLAGS)}", "max_staleness": runs}
    RESULTS.write_text(json.dumps(figures) + "\n", encoding="utf-8")


def _measured(folder: Path, staleness: str) -> dict[str, Any]:
    command: list[str | Path] = [Path(sys.executable).parent / "rlcore", "quickstart", folder, "--max-staleness", staleness, *FLAGS, "-q"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    (trace,) = folder.glob("runs/quickstart/*/trace.json")
    return excerpt(json.loads(trace.read_text(encoding="utf-8")))


def excerpt(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a trace after the warm-up, and the slices of its first seconds after it."""
    lanes = {event["tid"]: event["args"]["name"].partition("-")[0] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    timed = (event for event in trace["traceEvents"] if event["ph"] == "X")
    slices = [(lanes[event["tid"]], event["name"], event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6) for event in timed]
    updates = [end for lane, name, _, end in slices if (lane, name) == ("trainer", "weights")]
    begin, end = updates[WARM_UP - 1], updates[-1]
    shown = [(lane, name, *_cut(start - begin, stop - begin, WINDOW)) for lane, name, start, stop in slices if name in COLOURS]
    return {
        "busy": {lane: round(_busy(slices, lane, begin, end), 3) for lane in LANES},
        "seconds_per_update": round((end - begin) / (len(updates) - WARM_UP), 3),
        "slices": [(lane, name, round(start, 3), round(stop, 3)) for lane, name, start, stop in _joined(shown) if stop > start],
    }


def _busy(slices: Sequence[Slice], lane: str, begin: float, end: float) -> float:
    """Return the share of the time in which a lane computes."""
    parts = (_cut(start - begin, stop - begin, end - begin) for one, name, start, stop in slices if one == lane and name in BUSY[lane])
    return sum(stop - start for start, stop in parts) / (end - begin)


def _cut(start: float, stop: float, length: float) -> tuple[float, float]:
    return min(max(start, 0.0), length), min(max(stop, 0.0), length)


def _joined(slices: Sequence[Slice]) -> list[Slice]:
    """Join slices of one activity that a picture cannot show apart."""
    found: list[Slice] = []
    for lane, name, start, stop in sorted(slices):
        if found and found[-1][:2] == (lane, name) and start - found[-1][3] < WINDOW / 700:
            found[-1] = (lane, name, found[-1][2], max(stop, found[-1][3]))
        else:
            found.append((lane, name, start, stop))
    return found


def draw() -> str:
    """Return the picture of the stored traces."""
    runs = json.loads(RESULTS.read_text(encoding="utf-8"))["max_staleness"]
    busy = {staleness: f"{100 * run['busy']['trainer']:.0f} %" for staleness, run in runs.items()}
    picture = Picture(
        "Overlapping against alternating",
        f"Traces of two runs of the quickstart's model. The trainer computes {busy['0']} of the time if the roles alternate, "
        f"and {busy['2']} if they overlap.",
    )
    picture.text(LEFT, 24, "Who computes when: two real runs", size=LARGE, bold=True)
    picture.text(LEFT, 43, "the quickstart's model, one producer, one trainer", size=SMALL, colour="muted")
    top = 72.0
    for staleness, name in RUNS.items():
        top = _panel(picture, top, f"{name} (--max-staleness {staleness})", runs[staleness])
    for x, y, colour, words in (
        (LEFT, 0, "strong-blue", "generation"),
        (LEFT + 120, 0, "strong-green", "scoring"),
        (LEFT + 220, 0, "strong-orange", "training"),
        (LEFT, 20, "ink", "weights"),
        (LEFT + 120, 20, "grey", "waiting"),
    ):
        picture.rect(x, top + y - 10, 12, 12, colour, edge="line")
        picture.text(x + 18, top + y, words, size=SMALL)
    return picture.svg(top + 32)


def _panel(picture: Picture, top: float, title: str, run: Mapping[str, Any]) -> float:
    """Draw the lanes of a run; return where the next panel begins."""
    picture.text(LEFT, top, title, bold=True)
    picture.text(RIGHT, top, f"{run['seconds_per_update']:.2f} s per update", anchor="end", size=SMALL, colour="muted")
    y = top + 24
    for lane in LANES:
        picture.text(LEFT, y, lane, size=SMALL)
        picture.text(RIGHT, y, f"busy {100 * run['busy'][lane]:.0f} %", anchor="end", size=SMALL, bold=lane == "trainer")
        picture.rect(LEFT, y + 6, RIGHT - LEFT, LANE, "grey")
        for one, name, start, stop in run["slices"]:
            if one == lane:
                picture.rect(_x(start), y + 6, max(_x(stop) - _x(start), 0.4), LANE, COLOURS[name])
        y += LANE + 26
    for second in range(int(WINDOW) + 1):
        anchor = {0: "start", int(WINDOW): "end"}.get(second, "middle")
        picture.text(_x(second), y - 4, f"{second} s", anchor=anchor, size=SMALL, colour="muted")
    return y + 28


def _x(second: float) -> float:
    return LEFT + (RIGHT - LEFT) * second / WINDOW
