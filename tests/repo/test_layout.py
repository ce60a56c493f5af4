"""The house style that a machine can check: sizes, names, and what a plugin's folder holds."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST_FUNCTION = 80
LONGEST_FILE = 500
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}

SOURCES = sorted(
    path
    for folder in ("rlcore", "plugins", "tests")
    for path in (ROOT / folder).rglob("*.py")
    if not {"build", ".venv", "node_modules", "broken"} & set(path.relative_to(ROOT).parts)
)
PLUGINS = sorted(folder for kind in (ROOT / "plugins").glob("*") if kind.is_dir() for folder in kind.iterdir() if folder.is_dir())


def long_functions(source: str) -> list[str]:
    """``name (lines)`` of every function over the limit, decorators and docstring included."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = [(node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions]
    return [f"{name} ({length} lines)" for name, length in lengths if length > LONGEST_FUNCTION]


def test_no_function_is_over_80_lines() -> None:
    assert [f"{path.relative_to(ROOT)}: {name}" for path in SOURCES for name in long_functions(path.read_text())] == []


def test_no_file_is_over_500_lines() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in SOURCES}
    assert {str(path): length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_names_say_what_is_inside() -> None:
    vague = [path for path in SOURCES if VAGUE & {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}]
    assert vague == []


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_a_plugin_folder_is_a_whole_distribution(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    suffix = project["name"].removeprefix("rlcore-plugin-")
    assert suffix == folder.name
    assert project["entry-points"]["rlcore"] == {suffix: f"rlcore_plugin_{suffix}"}
    assert any(dependency.startswith("rlcore>=") for dependency in project["dependencies"])
    package = folder / f"rlcore_plugin_{suffix}" / "__init__.py"
    assert 'rlcore_api = "' in package.read_text()
    assert (folder / "README.md").read_text().strip()
    assert list((folder / "tests").rglob("test_*.py"))


def test_the_test_sees_a_long_function() -> None:
    body = "\n".join("    pass" for _ in range(LONGEST_FUNCTION))
    assert long_functions(f"def long():\n{body}\n") == ["long (81 lines)"]
    assert long_functions(f"def fits():\n{body.removesuffix('    pass')}\n") == []
