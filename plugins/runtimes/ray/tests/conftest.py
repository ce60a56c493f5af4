"""A cluster of stubs for one test, and jobs for it; makes the module that these tests share importable by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rlcore_plugin_ray.launch import Machines, Packages, SlurmJob

sys.path.insert(0, str(Path(__file__).parent))
from kit_cluster import StubCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StubCluster]:
    """Stubs of Slurm, Ray, rlcore, pip and Apptainer; what was started and still runs is ended."""
    made = StubCluster(tmp_path)
    yield made
    made.close()


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., SlurmJob]:
    """A function that makes a job of three nodes; keywords change it."""

    def make(**changes: object) -> SlurmJob:
        folder = tmp_path / 'it\'s a "folder" $HOME'
        folder.mkdir(exist_ok=True)
        values: dict[str, object] = {
            "project": "demo",
            "folder": str(folder),
            "train": ["run.toml", "-t", "4"],
            "machines": Machines(nodes=3, gpus=2, cpus=16),
            "packages": Packages(versions=("rlcore==0.1.0", "rlcore-plugin-x==1.0")),
        }
        return SlurmJob(**{**values, **changes})  # type: ignore[arg-type]

    return make
