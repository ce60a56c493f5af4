"""The Makefile, where it decides something itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TYPED = {"ARGS", "DEVICE", "WORKERS"}


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """Without the variables by which a make above this one would pass its own words on: `make test ARGS=...` exports ARGS."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name not in TYPED}
    return subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), *words], env=environment, capture_output=True, text=True, check=False
    )


def test_an_older_python_is_told_which_one_is_needed_and_leaves_nothing(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} -c "import sys; sys.version_info = (3, 10, 13); $2"\ntouch {tmp_path}/ran\n'
    )
    old.chmod(0o755)
    done = make("env", f"PYTHON={old}", f"VENV={tmp_path}/venv")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"{old} is Python 3.10, and rlcore needs Python 3.11 or newer; type PYTHON=/path/to/it"
    assert list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize(
    ("broken", "built"),
    [
        ("raise SystemExit(1)", True),
        ("sys.version_info = (3, 10, 13)", True),
        ("sys.modules['pip'] = None", True),
        ("sys.modules['pip'] = sys", False),
    ],
    ids=["a python that is gone", "an older python", "no pip", "an environment that works"],
)
def test_an_environment_that_cannot_be_used_is_built_anew(tmp_path: Path, broken: str, built: bool) -> None:
    environment = tmp_path / "venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").touch()
    script = f'#!/bin/sh\nexec {sys.executable} -c "import sys; {broken}; $2"\n'
    newer = f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\necho "$@" >> {tmp_path}/ran\n'
    for path, text in ((environment / "bin/python", script), (environment / "bin/pip", "#!/bin/sh\n"), (tmp_path / "python", newer)):
        path.write_text(text)
        path.chmod(0o755)
    done = make("env", f"PYTHON={tmp_path}/python", f"VENV={environment}")
    assert done.returncode == 0, done.stderr
    assert ((tmp_path / "ran").read_text() if built else not (tmp_path / "ran").exists()) == (
        f"-m venv --clear {environment}\n" if built else True
    )


def test_the_quickstart_installs_the_plugins_of_its_extra() -> None:
    words = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("QUICK :="))
    folders = [ROOT / "plugins" / word for word in words.partition("plugins/,")[2].rstrip(")").split()]
    named = {tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"] for folder in folders}
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["quickstart"]
    assert named == {re.split(r"[\[>]", requirement)[0] for requirement in extra if requirement.startswith("rlcore-")}


@pytest.mark.parametrize("folder", ["parent", "inside", "beside"])
def test_rlcore_is_imported_wherever_python_starts(folder: str, tmp_path: Path) -> None:
    """A clone that is named rlcore is no package for a Python that starts in its parent folder, or that runs a script there."""
    script = "import rlcore; assert callable(rlcore.train), rlcore"
    (tmp_path / "rlcore").mkdir()
    (tmp_path / "script.py").write_text(script)
    where, words = {
        "parent": (tmp_path, ["-c", script]),
        "inside": (ROOT, ["-c", script]),
        "beside": (ROOT, [str(tmp_path / "script.py")]),
    }[folder]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, *words], cwd=where, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_editable_install_is_a_plain_path() -> None:
    """The finder of other editable installs comes after the path, on which the folder of a clone hides the package."""
    for project in (ROOT / "pyproject.toml", *(ROOT / "plugins").glob("*/*/pyproject.toml")):
        assert tomllib.loads(project.read_text())["tool"]["setuptools"]["package-dir"] == {"": "."}, project


@pytest.mark.parametrize("device", ["cpu", "CPU"])
def test_the_cpu_is_tried_in_the_environment_however_it_is_typed(tmp_path: Path, device: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text('#!/bin/sh\necho environment "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / ".installed").touch()
    done = make("gpu", f"VENV={tmp_path}", "PYTHON=false", f"DEVICE={device}")
    assert done.stdout.splitlines()[-1] == f"environment -m benchmarks.gpu --device {device}", done.stderr
