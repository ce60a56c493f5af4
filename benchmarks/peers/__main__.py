"""`make bench-peers`: rlcore and TRL's ``GRPOTrainer`` on the same work, alternating.

Both sides start from the same folder: model, rows, hyperparameters; ``kl_coeff`` (``beta``) is 0, generation is transformers' own on TRL's
side and the backend ``transformers`` on rlcore's, and a step's rollouts go through as many forwards on both. Every run is a process of its
own; the sides alternate over ``--rounds``, so what else the machine does hits all of them. A run's figure is the median of its steps after
the warm-up, and the table shows the medians of the runs: seconds and CPU seconds of a step, and the largest memory of the process.

``arithmetic``: of rlcore's step alternating, the share that its products would take at the speed of large ones on the same thread.

Ways of rlcore: alternating in one process (the one that CPU seconds and memory are compared of), and overlapping, producer and trainer as
processes, with one thread each. ``best``: TRL's fastest way against rlcore's fastest, with one and with two threads.

verl and OpenRLHF are not in it: both train on CUDA devices alone (their workers ask torch for one when they start). The last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rlcore_plugin_quickstart.assets import prepare

from benchmarks.peers.runs import one_run
from benchmarks.peers.shapes import SHAPES, make_folder

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "speed.md"
BEGIN, END = "<!-- bench-peers: begin -->", "<!-- bench-peers: end -->"
WAYS: Mapping[str, Sequence[str]] = {
    "TRL": ("trl", "1"),
    "rlcore": ("rlcore", "1", "0"),
    "TRL, 2 threads": ("trl", "2"),
    "rlcore, 2 threads": ("rlcore", "2", "0"),
    "rlcore, overlapping": ("rlcore", "1", "1"),
}
"""Name -> side, threads, and of rlcore the staleness."""
LONG_WAYS = ("TRL", "rlcore")
"""Those of the large shapes, unless ``--all-ways`` is typed: a step of TRL takes half a minute there."""


def main() -> None:
    """Run every way of every shape alternating, then print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, required=True, help="the Python of the environment that TRL is in")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way (3)")
    parser.add_argument("--steps", type=int, help="steps of a run that count (the shape's)")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="one shape alone; again for more")
    parser.add_argument("--flames", type=Path, help="only draw a flame graph of rlcore alternating, speed-SHAPE.svg, into this folder")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}, between its markers")
    parser.add_argument("--all-ways", action="store_true", help="threads and overlapping at the large shapes too")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="rlcore-bench-") as name:
        base = prepare(Path(name) / "assets", 0, lambda line: console.print(line)).folder
        for shape in arguments.shape or SHAPES:
            folder = make_folder(Path(name) / shape, SHAPES[shape], base, arguments.steps)
            if arguments.flames:
                draw(folder, arguments.flames, arguments.peer)
                continue
            ways = list(WAYS) if arguments.all_ways or shape == "quickstart" else list(LONG_WAYS)
            found[shape] = compared(measured(folder, ways, arguments.rounds, arguments.peer, console))
            console.print(table(shape, found[shape]["ways"]))
    if arguments.write and found:
        write_page(PAGE, page(found, arguments.rounds))
    print(json.dumps({"rounds": arguments.rounds, "cores": os.cpu_count(), "shapes": found}))


def measured(folder: Path, ways: Sequence[str], rounds: int, peer: Path, console: Console) -> dict[str, list[dict[str, Any]]]:
    """The figures of every run, by way."""
    seen: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in ways:
            seen[way].append(one_run(folder, WAYS[way], peer))
            figures = seen[way][-1]
            console.print(
                f"{folder.name}, round {number + 1}, {way}: {figures['seconds']:.3f} s a step, {figures['cpu_seconds']:.3f} CPU s, "
                f"{figures['peak_bytes'] / 1e9:.2f} GB, reward {figures['reward']:.2f}, length {figures['mean_length']:.1f}"
            )
    return seen


def draw(folder: Path, where: Path, peer: Path) -> None:
    """A flame graph of one run, its beginning included, by py-spy."""
    image = where / f"speed-{folder.name}.svg"
    spy = [str(peer.parent / "py-spy"), "record", "--function", "--rate", "100", "--format", "flamegraph", "--output", str(image), "--"]
    run = [sys.executable, "-m", "benchmarks.peers.rlcore_side", str(folder), *WAYS["rlcore"][1:]]
    subprocess.run([*spy, *run], env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}, check=True, stdout=subprocess.DEVNULL)
    named = re.sub(r'(<text id="title"[^>]*>)[^<]*', rf"\1rlcore, {folder.name}, alternating", image.read_text(encoding="utf-8"))
    image.write_text(named, encoding="utf-8")  # py-spy's own title is the command, with the folders of this machine


def compared(seen: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Medians by way, and the ratios TRL / rlcore; of memory rlcore / TRL."""
    keys = ("seconds", "cpu_seconds", "peak_bytes", "reward", "mean_length")
    ways = {way: {key: round(statistics.median(run[key] for run in runs), 4) for key in keys} for way, runs in seen.items()}
    for way, runs in seen.items():
        if "arithmetic" in runs[0]:
            ways[way]["arithmetic"] = {
                name: round(statistics.median(run["arithmetic"][name] for run in runs), 3) for name in ("share", "gflops")
            }
        if "split" in runs[0]:
            ways[way]["split"] = {
                name: round(statistics.median(run["split"].get(name, 0.0) for run in runs), 4) for name in runs[0]["split"]
            }
    fastest = {side: min(of["seconds"] for way, of in ways.items() if way.startswith(side)) for side in ("TRL", "rlcore")}
    one, other = ways["TRL"], ways["rlcore"]
    return {
        "speedup": round(one["seconds"] / other["seconds"], 2),
        "cpu_speedup": round(one["cpu_seconds"] / other["cpu_seconds"], 2),
        "best_speedup": round(fastest["TRL"] / fastest["rlcore"], 2),
        "memory_ratio": round(other["peak_bytes"] / one["peak_bytes"], 2),
        "ways": ways,
    }


def page(found: Mapping[str, Any], rounds: int) -> str:
    """The tables as markdown."""
    ratios = ["| shape | seconds, alternating | CPU seconds | seconds, fastest ways | peak memory |", "|---|---|---|---|---|"]
    ways = ["| shape | way | s/step | CPU s/step | peak memory |", "|---|---|---|---|---|"]
    for shape, of in found.items():
        ratios.append(f"| {shape} | {of['speedup']}x | {of['cpu_speedup']}x | {of['best_speedup']}x | {of['memory_ratio']} |")
        for way, one in of["ways"].items():
            alone = (f"{one['cpu_seconds']:.3f}", f"{one['peak_bytes'] / 1e9:.2f} GB")
            whole = ("-", "-") if "overlapping" in way else alone  # what is measured there is the driver's alone
            ways.append(f"| {shape} | {way} | {one['seconds']:.3f} | {' | '.join(whole)} |")
    shares = ", ".join(f"{shape} {of['ways']['rlcore']['arithmetic']['share']:.0%}" for shape, of in found.items())
    said = f"Made by `make bench-peers ARGS=--write`: medians of {rounds} rounds, {os.cpu_count()} cores."
    products = f"Share of rlcore's alternating step that its products take at the speed of large ones: {shares}."
    return "\n".join([said, "", "TRL's figure over rlcore's (of memory rlcore's over TRL's):", "", *ratios, "", *ways, "", products])


def write_page(path: Path, text: str) -> None:
    """Put it between the markers of the page."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path}: the tables go between the lines {BEGIN} and {END}; add them where they should stand")
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def table(shape: str, ways: Mapping[str, Mapping[str, float]]) -> Table:
    """A row a way."""
    made = Table(shape, "s/step", "CPU s/step", "GB")
    for way, of in ways.items():
        made.add_row(way, f"{of['seconds']:.3f}", f"{of['cpu_seconds']:.3f}", f"{of['peak_bytes'] / 1e9:.2f}")
    return made


if __name__ == "__main__":
    main()
