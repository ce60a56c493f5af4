"""``make chaos``: runs of 200 updates with staleness 2 whose processes and nodes are killed, stopped and cut off in turn.

``--write`` puts the tables into docs/when_things_break.md.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
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
from tests.chaos.watching import Run


def main(words: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(words)
    folder = Path(tempfile.mkdtemp(prefix="rl", dir="/tmp"))
    rows: list[Row] = []
    ends: list[dict[str, Any]] = []
    for name, faults in SCHEDULES.items():
        chosen = [fault for fault in faults if re.search(arguments.only, f"{name}: {fault.name}")]
        if chosen and name.startswith(arguments.runtime):
            for row, end in run_schedule(folder / name, name, chosen, arguments):
                rows += row
                ends.append(end)
    print(json.dumps({"rows": [row.as_json() for row in rows], "runs": ends}))
    if not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(folder)
    return 0


def run_schedule(folder: Path, name: str, faults: list[Fault], arguments: argparse.Namespace) -> Iterator[tuple[list[Row], dict[str, Any]]]:
    folder.mkdir()
    runtime = "local" if name == "local" else "ray"
    project = Project(folder, Shape(runtime=runtime, fakes=arguments.fakes, updates=arguments.updates))
    left, number = list(faults), 0
    with ExitStack() as stack:
        link = stack.enter_context(linked()) if name == "ray-nodes" else None
        cluster = None
        if runtime == "ray":
            cluster = Raylets(folder.parent / f"c{name[4]}", *([link.outside] if link else []))
            stack.callback(cluster.close)
        while left:
            number += 1
            began = time.monotonic()
            with Run(project, f"chaos-{number}") as run:
                scene = Scene(run=run, chance=random.Random(number), cluster=cluster, link=link)
                if cluster is not None:
                    whole(scene)
                suffering = Suffering(name, limit=arguments.limit, spacing=arguments.spacing, say=print)
                rows = list(suffering.rows(scene, left))
                left = left[len(rows) :]
                code = suffering.finish(scene)
                end = {"schedule": name, "exit_code": code, "lives": run.lives, "minutes": round((time.monotonic() - began) / 60, 1)}
                if code == 0:
                    end |= project.check(run.name)
                print(end)
                yield rows, end
            if not rows:
                raise RuntimeError(f"{name}: the run is too short for {left[0].name}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="PATTERN", help="faults whose 'schedule: kind, signal' holds this regular expression")
    parser.add_argument("--updates", type=int, default=200, metavar="N", help="updates of a run (200)")
    parser.add_argument("--runtime", default="", choices=("", "local", "ray"), help="only the schedules of this runtime")
    parser.add_argument("--fakes", action="store_true", help="the kit's fakes in place of transformers and torch")
    parser.add_argument("--limit", type=float, default=240.0, metavar="S", help="seconds after which a fault counts as hanging (240)")
    parser.add_argument("--spacing", type=int, default=8, metavar="N", help="updates that a run must make after a fault (8)")
    parser.add_argument("--keep", action="store_true", help="keep the folder of the runs, and say where it is")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
