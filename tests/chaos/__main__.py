"""``make chaos``: runs of 200 updates with staleness 2 whose processes and nodes are killed, stopped and cut off, one after the other.

A run suffers as many faults as it is long; if some are left, another run suffers those. For each runtime one run suffers none. ``--write``
puts the tables into docs/explanation/crashes.md. The last line is one JSON object; the exit code is 1 if something is wrong: a run
that hangs, or ends where it could go on, a prompt trained twice or never, a process that is left.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.chaos.faults import SCHEDULES, Fault, Scene, whole
from tests.chaos.project import Project, Shape
from tests.chaos.raylets import Raylets, linked
from tests.chaos.schedule import Row, Suffering
from tests.chaos.tables import tables, write
from tests.chaos.watching import Run

_ENDING_SECONDS = 10.0
_BRIEF_SILENCE = 10.0
"""The deadline of heartbeats where nodes are lost. Runs that lose processes have all deadlines at their defaults."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the schedules that were asked for, and print what came of them."""
    arguments = _parser().parse_args(words)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has a program in the background ignore it
    rows, ends = list[Row](), list[dict[str, Any]]()
    with ExitStack() as closing:
        folder = Path(tempfile.mkdtemp(prefix="rl", dir="/tmp"))  # short, for the sockets of Ray
        if not arguments.keep:
            closing.callback(shutil.rmtree, folder, ignore_errors=True)
        for name, faults in SCHEDULES.items():
            chosen = [fault for fault in faults if re.search(arguments.only, f"{name}: {fault.name}")]
            if name.startswith(arguments.runtime) and (chosen or re.search(arguments.only, f"{name}: none")):
                for row, end in _runs(folder, name, chosen, arguments):
                    rows += row
                    ends.append(end)
        text = tables(rows, ends)
        if arguments.write:
            write(rows, ends)
        wrong = sum(row.wrong for row in rows) + sum(end["wrong"] for end in ends)
        print(text)
        print(json.dumps({"wrong": wrong, "faults": [row.as_json() for row in rows], "runs": ends, "folder": str(folder)}))
    return int(wrong > 0)


def _runs(folder: Path, name: str, faults: list[Fault], arguments: argparse.Namespace) -> Iterator[tuple[list[Row], dict[str, Any]]]:
    """As many runs as it takes, each with its rows and its end."""
    runtime = name.partition("-")[0]
    silence = _BRIEF_SILENCE if name in ("ray-nodes", "ray-head") else None
    shape = Shape(runtime=runtime, fakes=arguments.fakes, updates=arguments.updates, pace=arguments.pace, silence=silence)
    project = Project(folder / name, shape)
    with ExitStack() as closing:
        link = closing.enter_context(linked()) if name == "ray-nodes" else None
        cluster = Raylets(folder / f"c{name[4:5]}", link.outside if link else "127.0.0.1") if runtime == "ray" else None
        if cluster is not None:
            closing.callback(cluster.close)
        number, left = 0, list(faults)
        while number == 0 or left:
            number += 1
            with Run(project, f"chaos-{number}") as run:
                scene = Scene(run=run, chance=random.Random(number), cluster=cluster, link=link)
                whole(scene)
                rows, end = _suffered(scene, name, left, arguments)
            left = left[len(rows) :]
            yield rows, end
            if left and not rows:
                raise RuntimeError(f"{name}: a run is too short for {left[0].name}")


def _suffered(scene: Scene, name: str, left: list[Fault], arguments: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    began, run = time.monotonic(), scene.run
    suffering = Suffering(name, limit=arguments.limit, spacing=arguments.spacing, say=_say)
    rows = list(suffering.rows(scene, left))
    code = suffering.finish(run)
    end = {"schedule": name, "faults": len(rows), "exit_code": code, "lives": run.lives}
    end |= {"minutes": round((time.monotonic() - began) / 60, 1), "seconds_a_step": round(run.median, 2), "left": _left(scene)}
    if code == 0:
        end |= run.project.check(run.name)
    end["wrong"] = bool(code or end["left"] or end["doubled"] or end["missing"] or not end["whole"])
    _say(f"{name}: {json.dumps(end)}")
    return rows, end


def _left(scene: Scene) -> list[str]:
    """Processes of the run that its end has left."""
    until = time.monotonic() + _ENDING_SECONDS
    while (left := scene.leftovers()) and time.monotonic() < until:
        time.sleep(0.2)
    return left


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="faults whose 'schedule: kind, signal' this regular expression finds")
    parser.add_argument("--updates", type=int, default=200, metavar="N", help="updates of a run (200)")
    parser.add_argument("--runtime", default="", choices=("", "local", "ray"), help="only the schedules of this runtime")
    parser.add_argument("--fakes", action="store_true", help="the kit's fakes in place of transformers and torch")
    parser.add_argument("--pace", type=float, default=0.15, metavar="S", help="seconds of a step of the fake engine (0.15)")
    parser.add_argument("--limit", type=float, default=240.0, metavar="S", help="seconds after which a fault counts as hanging (240)")
    parser.add_argument("--spacing", type=int, default=8, metavar="N", help="updates that a run must make after a fault (8)")
    parser.add_argument(
        "--write", action="store_true", help="put the tables into docs/explanation/crashes.md, where rows of what is not run stay"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder of the runs; the last line names it")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
