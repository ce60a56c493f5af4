"""The program of docs/how_to/sweeps.md for Ray Tune is run, on a Ray of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.sweep_page import SweepProject


@pytest.mark.nightly
def test_ray_tune_trains_each_setting_with_each_seed(tmp_path: Path, ray_dir: Path) -> None:
    project = SweepProject(tmp_path)
    said = project.python("with_ray_tune.py", RAY_TMPDIR=str(ray_dir)).splitlines()[-1]
    best = re.match(r"best: (\S+) (\{.*\})", said)
    assert best is not None, said
    assert (Path(best[1]) / "summary.json").is_file()
    names = [str(path) for path in project.runs("tune")]
    found = RunTester(tmp_path, in_process=True).run("compare", *names, "--json").assert_ok().json
    assert sorted(len(group["runs"]) for group in found["groups"]) == [3, 3]
    assert found["settings"] == [{"name": "training.learning_rate", "values": found["settings"][0]["values"]}]
