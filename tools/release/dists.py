"""Build each distribution: a source distribution from the tree, and a wheel from the source distribution alone.

Each build runs in a folder of its own, which holds the files that the project ships and nothing else: what an earlier build left in the
tree cannot get into a package, and the tree stays as it is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.dependencies import normal
from tools.release.projects import Project, projects

SHIPPED = ("LICENSE", "README.md", "pyproject.toml")
_BUILT = shutil.ignore_patterns("__pycache__", "*.egg-info")
_PYTHON = 'python_version >= "3.11"'


class BuildError(Exception):
    """A distribution that cannot be built; the text is one sentence and what the build printed."""


def build(root: Path, out: Path) -> list[Path]:
    """Build every distribution into the folder ``out``, which is emptied first; return the sources and the wheels.

    ``out`` also gets ``constraints.txt``: the versions that the tests ran with, and those of ours.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    found = projects(root)
    with ThreadPoolExecutor(max_workers=2) as pool:
        made = [path for pair in pool.map(lambda one: _build_one(one, out), found) for path in pair]
    (out / "constraints.txt").write_text(_constraints(root, found), encoding="utf-8")
    return made


def _build_one(one: Project, out: Path) -> tuple[Path, Path]:
    with tempfile.TemporaryDirectory(prefix="rlcore-dists-") as name:
        tree, away = Path(name) / "tree", Path(name) / "away"
        tree.mkdir()
        for file in SHIPPED:
            shutil.copyfile(one.folder / file, tree / file)  # LICENSE of a plugin is a link to the core's
        shutil.copytree(one.package, tree / one.package.name, ignore=_BUILT)
        source = _backend("sdist", tree, out)
        with tarfile.open(source) as archive:
            archive.extractall(away, filter="data")
        (unpacked,) = away.iterdir()
        return source, _backend("wheel", unpacked, out)


def _backend(kind: str, folder: Path, out: Path) -> Path:
    """Call the build backend in its own process, as pip does; return the file."""
    program = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", program, out.resolve()], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"the {kind} of {folder.name} cannot be built:\n{done.stdout}{done.stderr}")
    return out / done.stdout.splitlines()[-1]


def _constraints(root: Path, found: Iterable[Project]) -> str:
    """Return the pins. Without the marker, pip would say of an older Python that packages conflict, and not that it is too old."""
    tested = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    others = [line if line.startswith("#") else f"{line}; {_PYTHON}" for line in tested]
    return "\n".join([*others, *sorted(f"{normal(one.name)}=={one.version}" for one in found)]) + "\n"
