"""The lower bounds of transformers that the backends declare are true: their fast tests pass with them.

Run with torch 2.13 only; that older ones work down to 2.6 (the backend ``torch``: 2.9) is by reading, and what transformers itself asks
for. Each version of transformers goes into a folder of its own, with what it needs (huggingface_hub below 2), first on the path of a new
interpreter.
Needs a package index; some minutes a version.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BACKENDS = ROOT / "plugins" / "backends"
GPU_MACHINE = "5.17.0"
"""Of the machine that `make gpu` was written for."""


def declared(plugin: str) -> str:
    """The lowest release of transformers that a plugin admits: 5.17 is 5.17.0."""
    project = tomllib.loads((BACKENDS / plugin / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (bound,) = [found[1] for line in project["dependencies"] if (found := re.match(r"transformers\b.*?>=([\d.]+)", line))]
    return ".".join([*bound.split("."), "0", "0"][:3])


LOWEST = {declared("torch"), declared("transformers")}


def install(version: str, folder: Path) -> None:
    """transformers with what it needs; other packages as they are pinned here, which excludes its own companions."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in pins if not re.match(r"(torch|transformers|tokenizers|huggingface|datasets|pyarrow)\b", line)]
    constraints = folder.with_suffix(".txt")
    constraints.write_text("\n".join(kept) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", str(constraints)]
    subprocess.run([*command, "--target", str(folder), f"transformers=={version}"], check=True)


def test_the_page_of_the_gpu_names_the_versions_that_are_tried() -> None:
    (pinned,) = re.findall(r"^transformers==([\d.]+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    page = (ROOT / "docs" / "maintainers" / "gpu.md").read_text(encoding="utf-8").partition("## Versions that were tried")[2]
    (lowest,) = LOWEST
    assert set(re.findall(r"\b5\.\d+\.\d+\b", page)) == {lowest, GPU_MACHINE, pinned}
    assert f"the lower bound {lowest} with" in page


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", sorted({*LOWEST, GPU_MACHINE}))
def test_the_backends_pass_their_fast_tests_with_it(version: str, tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    install(version, folder)
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    asked = "import transformers; print(transformers.__version__)"
    found = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert found == version, "the interpreter finds another transformers first"
    options = ["-q", "-p", "no:cacheprovider", "-m", "not full and not nightly", "--tb=short"]
    command = [sys.executable, "-m", "pytest", *options, str(BACKENDS)]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 200
