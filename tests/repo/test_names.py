"""A class name and a file name mean one thing in the whole tree, so that whoever searches for one finds it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.syntax import nodes

ROOT = Path(__file__).parents[2]


def class_names(path: Path) -> list[str]:
    """The names of all classes that a file defines."""
    return [node.name for node in nodes(path.read_text(encoding="utf-8")) if isinstance(node, ast.ClassDef)]


def repeated(root: Path) -> dict[str, list[str]]:
    """Name -> the files that share it.

    Class names of ``rlcore/`` and ``plugins/``; file names of ``rlcore/`` only: a plugin is a package of its own, whose author does not
    know how others call their files. ``__init__.py`` and ``__main__.py`` are Python's names, and a page of ``rlcore.api`` is called after
    what it is the page of.
    """
    places: dict[str, list[str]] = {}
    for path in _sources(root):
        where = path.relative_to(root)
        names = class_names(path)
        if where.parts[0] == "rlcore" and where.parts[1] != "api" and not path.stem.startswith("__"):
            names.append(path.name)
        for name in dict.fromkeys(names):
            places.setdefault(name, []).append(where.as_posix())
    return {name: files for name, files in sorted(places.items()) if len(files) > 1}


def _sources(root: Path) -> Iterable[Path]:
    for folder in ("rlcore", "plugins"):
        for path in sorted((root / folder).rglob("*.py")):
            if not {"tests", "build", ".venv"} & set(path.relative_to(root).parts):
                yield path


def test_class_and_file_names_are_unique() -> None:
    found = repeated(ROOT)
    assert not found, f"names that mean several things; give all but one another name: {found}"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"rlcore/a/job.py": "class Job: ...", "plugins/x/y/z/work.py": "class Job: ..."}, ["Job"]),
        ({"rlcore/a/job.py": "class Outer:\n    class Job: ...", "rlcore/b/work.py": "class Job: ..."}, ["Job"]),
        ({"rlcore/a/job.py": "", "rlcore/b/job.py": ""}, ["job.py"]),
        ({"rlcore/a/job.py": "", "plugins/x/y/z/job.py": "", "rlcore/api/job.py": ""}, []),
        ({"rlcore/a/__init__.py": "", "rlcore/b/__init__.py": "", "plugins/x/y/tests/one.py": "class Job: ..."}, []),
    ],
)
def test_the_search_itself(tmp_path: Path, files: dict[str, str], found: list[str]) -> None:
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    assert list(repeated(tmp_path)) == found
