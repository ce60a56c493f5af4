"""``make chaos`` in short: a run of processes of this machine loses a producer and a rank by SIGKILL, and each of them by SIGSTOP."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.chaos.faults import Scene, process_fault
from tests.chaos.project import Project, Shape
from tests.chaos.schedule import Suffering
from tests.chaos.watching import Run

FAULTS = [process_fault(kind, number) for kind in ("producer", "rank") for number in (signal.SIGKILL, signal.SIGSTOP)]
LIMIT = 120.0


@pytest.mark.nightly
@pytest.mark.timeout(5 * LIMIT)
def test_a_run_that_loses_producers_and_ranks_ends_with_every_prompt_once(tmp_path: Path) -> None:
    project = Project(tmp_path, Shape(runtime="local", fakes=True, updates=60, silence=4.0))
    with Run(project, "brief") as run:
        scene = Scene(run=run, chance=random.Random(0))
        suffering = Suffering("brief", limit=LIMIT, spacing=6, say=print)
        rows = list(suffering.rows(scene, FAULTS))
        code = suffering.finish(run)
        said = run.log.read_text("utf-8")
    assert code == 0, said
    assert [(row.fault, row.came) for row in rows] == [(fault.name, "continues") for fault in FAULTS], said
    assert run.lives == 1, said
    found = project.check(run.name)
    assert (found["doubled"], found["missing"], found["whole"]) == (0, 0, True), found
    assert scene.leftovers() == []
