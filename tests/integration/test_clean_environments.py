"""The wheels in new environments of three Pythons, from an index on this machine: what a user gets after a release.

Python 3.11 gets everything and trains two steps. Python 3.12 and 3.13 get what needs no torch, since the CPU wheel of torch that CI has is
for 3.11 alone. Other packages come from the package index that pip is configured for.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.release.clean import try_out
from tools.release.dists import build

ROOT = Path(__file__).parents[2]
BUILT = (ROOT / "LICENSE", ROOT / "README.md", ROOT / "plugins", ROOT / "pyproject.toml", ROOT / "rlcore")
"""What the build reads: the key of the group of these tests is made of it."""
NO_TORCH = 23
"""Distributions that install without torch. Each one that begins to require it is a decision."""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert all(path.exists() for path in BUILT)
    folder = tmp_path_factory.mktemp("built") / "dist"
    build(ROOT, folder)
    return folder


def interpreter(version: str) -> str:
    """A Python of this version: on the path, or among those of pyenv."""
    found = [path for path in (shutil.which(f"python{version}"),) if path]
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip()
        found += sorted(map(str, Path(root).glob(f"versions/{version}.*/bin/python")))
    for path in found:
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:  # a shim of pyenv may lead nowhere
            return path
    pytest.fail(f"there is no Python {version} on this machine; install it, or pyenv with it")


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_everything_installs_from_a_local_index_and_trains(dist: Path, tmp_path: Path) -> None:
    found = try_out(sys.executable, dist, tmp_path, whole=True)
    assert (found["distributions"], found["trained"]) == (len(list(dist.glob("*.whl"))), True)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_what_needs_no_torch_runs_on_newer_pythons(dist: Path, tmp_path: Path, version: str) -> None:
    found = try_out(interpreter(version), dist, tmp_path, whole=False)
    assert found["python"].startswith(f"{version}.")
    assert found["distributions"] == NO_TORCH
