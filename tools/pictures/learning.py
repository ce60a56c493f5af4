"""The learning curve of the quickstart: held-out accuracy over updates, for three seeds. ``measure`` makes the runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tools.pictures.svg import SMALL, WIDTH, Picture

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "learning.json"
SEEDS, INTERVAL = (0, 1, 2), 10
LEFT, RIGHT, TOP, BOTTOM = 46.0, WIDTH - 14.0, 62.0, 288.0


def measure() -> None:
    """Run the quickstart once for each seed, in this environment, and write the figures."""
    with TemporaryDirectory(prefix="rlcore-pictures-") as name:
        runs = {str(seed): _curve(Path(name) / f"seed-{seed}", seed) for seed in SEEDS}
    figures = {"command": f"rlcore quickstart --seed N --eval-interval {INTERVAL}", "prompts": _prompts(runs), "seeds": runs}
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _curve(folder: Path, seed: int) -> dict[str, Any]:
    """Run one seed; return its curve and the number of its held-out prompts."""
    command: list[str | Path] = [
        Path(sys.executable).parent / "rlcore",
        "quickstart",
        folder,
        "--seed",
        str(seed),
        "--eval-interval",
        str(INTERVAL),
        "-q",
    ]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return read_curve(folder)


def read_curve(folder: Path) -> dict[str, Any]:
    """Read the curve of the only run in a folder of the quickstart."""
    (metrics,) = folder.glob("runs/quickstart/*/metrics.jsonl")
    rows = (json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines())
    accuracy = {str(row["step"]): row["eval/sort"] for row in rows if "eval/sort" in row}
    return {"prompts": len((folder / "heldout.jsonl").read_text(encoding="utf-8").splitlines()), "accuracy": accuracy}


def _prompts(runs: Mapping[str, dict[str, Any]]) -> int:
    (prompts,) = {run.pop("prompts") for run in runs.values()}
    return int(prompts)


def draw() -> str:
    """Return the picture of the stored figures."""
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))
    curves = [{int(step): 100 * value for step, value in run["accuracy"].items()} for run in figures["seeds"].values()]
    steps = sorted(curves[0])
    first, last = (_range([curve[step] for curve in curves]) for step in (steps[0], steps[-1]))
    picture = Picture(
        "A learning curve of the quickstart",
        f"Held-out accuracy of {len(curves)} seeds: {first} before training, {last} after {steps[-1]} updates.",
    )
    picture.text(14, 24, "rlcore quickstart: held-out accuracy", size=15.0, bold=True)
    picture.text(14, 43, f"{len(curves)} seeds, lowest to highest; {figures['prompts']} prompts to sort digits", colour="muted", size=SMALL)
    for percent in range(0, 101, 20):
        picture.line([(LEFT, _y(percent)), (RIGHT, _y(percent))], "grid", width=1)
        picture.text(LEFT - 6, _y(percent) + 4, f"{percent} %", anchor="end", colour="muted", size=SMALL)
    lowest = [(_x(step, steps), _y(min(curve[step] for curve in curves))) for step in steps]
    highest = [(_x(step, steps), _y(max(curve[step] for curve in curves))) for step in steps]
    picture.area([*lowest, *reversed(highest)], "blue")
    for curve in curves:
        picture.line([(_x(step, steps), _y(curve[step])) for step in steps], "strong-blue", width=1.3)
    for step in steps[::2]:
        picture.text(_x(step, steps), BOTTOM + 18, str(step), anchor="middle" if step < steps[-1] else "end", colour="muted", size=SMALL)
    picture.text((LEFT + RIGHT) / 2, BOTTOM + 37, "updates", anchor="middle", colour="muted", size=SMALL)
    picture.text(LEFT + 12, _y(min(curve[steps[0]] for curve in curves)) + 22, f"before: {first}", bold=True)
    picture.text(RIGHT - 6, _y(min(curve[steps[-1]] for curve in curves)) + 26, f"after: {last}", anchor="end", bold=True)
    return picture.svg(BOTTOM + 48)


def _range(values: list[float]) -> str:
    return f"{round(min(values), 1):g} to {round(max(values), 1):g} %"


def _x(step: int, steps: list[int]) -> float:
    return LEFT + (RIGHT - LEFT) * step / steps[-1]


def _y(percent: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * percent / 100
