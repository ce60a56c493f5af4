"""Puts what the machine lacks, and this checkout, on the path of the parts; installs nothing into the machine. Standard library only.

Wheels that ``make gpu-wheels`` fetched go into a folder of their own. Packages of the checkout are read where they are: their folders go
on the path, and beside the wheels lie their names and entry points, as an installer would have written them, so that plugins are found.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu.refused import Refused
from benchmarks.gpu.setting import REPOSITORY

__all__ = ["declare_checkout", "needs_site", "path_of", "prepare_site", "projects", "refuse_incomplete"]

_STAMP = "made-of.json"
_BROUGHT = ("pydantic", "pydantic_core", "tomli_w", "math_verify", "latex2sympy2_extended", "rlcore_plugin_torch")
"""What the parts import and the wheels or the checkout bring."""
_EXPECTED = (
    "cloudpickle",
    "hypothesis",
    "jinja2",
    "numpy",
    "pluggy",
    "pytest",
    "rich",
    "safetensors",
    "sympy",
    "tokenizers",
    "torch",
    "transformers",
    "xxhash",
)
"""What the parts import and the machine must have. TRL's parts ask for more, and are not run without it."""


def needs_site() -> bool:
    """Whether this interpreter lacks something: an environment of ``make env`` holds all of it, and plugins installed besides."""
    return any(find_spec(name) is None for name in _BROUGHT)


def prepare_site(wheels: Path, site: Path) -> Path:
    """Fill ``site`` from the wheels and the checkout, unless it was filled from the same ones by the same Python; Refused."""
    found = sorted(wheels.glob("*.whl"))
    if not found:
        raise Refused(f"{wheels} holds no wheels; type `make gpu-wheels` on a machine with a network and bring the folder here")
    made_of = {"python": sys.version, "wheels": [path.name for path in found]}
    if not _is_made_of(site, made_of):
        shutil.rmtree(site, ignore_errors=True)
        _install(found, site)
        (site / _STAMP).write_text(json.dumps(made_of), encoding="utf-8")
    declare_checkout(site)
    return site


def refuse_incomplete(path: Sequence[str]) -> None:
    """Refused where a part, with ``path`` as its PYTHONPATH, would not find a package."""
    if absent := [name for name in (*_BROUGHT, *_EXPECTED) if find_spec(name) is None and PathFinder.find_spec(name, path) is None]:
        raise Refused(
            f"{sys.executable} lacks {', '.join(absent)} (`make gpu-wheels` brings what "
            "docs/maintainers/gpu.md does not ask of the machine); "
            "install that, or name a Python that has it: make gpu PYTHON=/path/to/python3"
        )


def path_of(site: Path | None) -> list[str]:
    """Folders for PYTHONPATH, first to last: the checkout's packages, then the site."""
    packages = [REPOSITORY, *(folder for folder, _ in projects() if folder != REPOSITORY)]
    return [str(folder) for folder in packages if site is not None or folder == REPOSITORY] + ([str(site)] if site is not None else [])


def projects() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Folder and ``[project]`` of rlcore and of every plugin of the checkout."""
    for file in (REPOSITORY / "pyproject.toml", *sorted(REPOSITORY.glob("plugins/*/*/pyproject.toml"))):
        yield file.parent, tomllib.loads(file.read_text(encoding="utf-8"))["project"]


def declare_checkout(site: Path) -> None:
    """Write name, version and entry points of each project of the checkout, anew each time: they may have changed."""
    for old in site.glob("rlcore*.dist-info"):
        shutil.rmtree(old)
    for _, project in projects():
        name, version = project["name"], project.get("version", "0+checkout")
        folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        keywords = ",".join(project.get("keywords", ()))
        head = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nKeywords: {keywords}\n"
        (folder / "METADATA").write_text(head, encoding="utf-8")
        groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
        lines = [line for group, entries in groups.items() if entries for line in (f"[{group}]", *map(" = ".join, entries.items()), "")]
        (folder / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _is_made_of(site: Path, made_of: dict[str, Any]) -> bool:
    try:
        return bool(json.loads((site / _STAMP).read_text(encoding="utf-8")) == made_of)
    except (OSError, ValueError):
        return False


def _install(wheels: list[Path], site: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir"]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    done = subprocess.run(
        [*command, "--target", str(site), *map(str, wheels)], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise Refused(f"the wheels in {wheels[0].parent} cannot be installed into {site}: {reason}")
