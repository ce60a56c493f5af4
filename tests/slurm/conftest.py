"""A real Slurm for the tests of this folder, which are skipped where none is installed, and a project that it runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.integration.ray.conftest import ENGINE
from tests.integration.ray.small_cluster import short_folder
from tests.slurm.small_slurm import SmallSlurm, small_slurm

PROGRAMS = ("slurmctld", "slurmd", "sbatch")


@pytest.fixture
def slurm(request: pytest.FixtureRequest) -> Iterator[SmallSlurm]:
    """Two nodes, both idle. An indirect parameter is ``SlurmctldParameters``."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    if missing := [name for name in PROGRAMS if shutil.which(name, path=path) is None]:
        pytest.skip(f"{', '.join(missing)} not found: install Slurm (Debian, Ubuntu: apt-get install slurm-wlm)")
    with short_folder() as folder, small_slurm(folder, *([request.param] if hasattr(request, "param") else [])) as made:
        yield made


@pytest.fixture
def tester(tmp_path: Path, slurm: SmallSlurm, monkeypatch: pytest.MonkeyPatch) -> RunTester:
    """A project with the fakes and an engine slow enough to be interrupted; its commands find the Slurm."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    made = RunTester(tmp_path / "project").with_fakes()
    made.plugins.install("slow", ENGINE.read_text("utf-8"))
    return made
