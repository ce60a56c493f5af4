"""The house style that a machine can check: sizes, names, and what a plugin's folder holds."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from tests.syntax import nodes, nodes_below

ROOT = Path(__file__).parents[2]
LONGEST_FUNCTION = 80
LONGEST_FILE = 500
ASKS = {"find_spec", "import_module", "__import__", "distribution", "PackageNotFoundError"}
"""Calls that ask whether a package is there."""
IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError"}
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}

SOURCES = sorted(
    path
    for folder in ("rlcore", "plugins", "tests")
    for path in (ROOT / folder).rglob("*.py")
    if not {"build", ".venv", "node_modules", "broken"} & set(path.relative_to(ROOT).parts)
)
NAMED = {"local": "sandbox", "nemo_gym": "nemo-gym", "program": "agents"}
"""Plugins that are not called after their folder, by folder: a distribution ``rlcore-plugin-local`` would say nothing."""
PLUGINS = sorted(folder for kind in (ROOT / "plugins").glob("*") if kind.is_dir() for folder in kind.iterdir() if folder.is_dir())


def long_functions(source: str) -> list[str]:
    """``name (lines)`` of every function over the limit, decorators and docstring included."""
    if source.count("\n") < LONGEST_FUNCTION:
        return []
    functions = [node for node in nodes(source) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = [(node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions]
    return [f"{name} ({length} lines)" for name, length in lengths if length > LONGEST_FUNCTION]


def package_skips(source: str) -> list[int]:
    """The lines that skip a test if a package is missing: ``importorskip``; ``skipif`` or ``skip`` on a condition that asks for a package,
    or on a name that holds the answer; ``skip`` after a failed import."""
    if "skip" not in source:
        return []
    every = nodes(source)
    failed = [node for node in every if isinstance(node, ast.ExceptHandler) and words(node.type) & IMPORT_ERRORS]
    asked = ASKS | {name for node in every if isinstance(node, ast.Assign) and words(node.value) & ASKS for name in words(*node.targets)}
    asked |= {name for handler in failed for node in nodes_below(handler) if isinstance(node, ast.Assign) for name in words(*node.targets)}
    found = [node.lineno for node in every if isinstance(node, ast.Call) and words(node.func) & {"importorskip"}]
    found += [node.lineno for node in every if isinstance(node, ast.Call) and words(node.func) & {"skipif"} and words(node) & asked]
    found += [node.lineno for node in every if isinstance(node, ast.If) and words(node.test) & asked and words(*node.body) & {"skip"}]
    return found + [handler.lineno for handler in failed if words(*handler.body) & {"skip"}]


def words(*trees: ast.AST | None) -> set[str]:
    """Names and attributes that occur."""
    below = [node for tree in trees if tree is not None for node in nodes_below(tree)]
    return {node.attr if isinstance(node, ast.Attribute) else node.id for node in below if isinstance(node, ast.Attribute | ast.Name)}


def test_no_function_is_over_80_lines() -> None:
    assert [f"{path.relative_to(ROOT)}: {name}" for path in SOURCES for name in long_functions(path.read_text())] == []


def test_no_file_is_over_500_lines() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in SOURCES}
    assert {str(path): length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_names_say_what_is_inside() -> None:
    vague = [path for path in SOURCES if VAGUE & {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}]
    assert vague == []


def test_no_test_is_skipped_for_want_of_a_package() -> None:
    """The extra dev has whatever the tests import, so a package that is missing fails."""
    assert [f"{path.relative_to(ROOT)}:{line}" for path in SOURCES for line in package_skips(path.read_text())] == []


LIBRARY = "rlcore-library"
"""Keyword of a distribution that plugins share and that registers nothing."""
OWN_SWITCH = {"tools": {"health": "rlcore_plugin_tools.health"}}
"""Entry points beside that of the distribution: parts that ``-p no:NAME`` switches off alone."""


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_a_plugin_folder_is_a_whole_distribution(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    suffix, package = project["name"].removeprefix("rlcore-").removeprefix("plugin-"), project["name"].replace("-", "_")
    assert suffix == NAMED.get(folder.name, folder.name)
    if LIBRARY in project.get("keywords", ()):
        assert "entry-points" not in project
    else:
        assert any(dependency.startswith("rlcore>=") for dependency in project["dependencies"])
        assert project["entry-points"]["rlcore"] == {suffix: package} | OWN_SWITCH.get(suffix, {})
        assert 'rlcore_api = "' in (folder / package / "__init__.py").read_text()
    assert (folder / "README.md").read_text().strip()
    assert list((folder / "tests").rglob("test_*.py"))


def test_the_test_sees_a_long_function() -> None:
    body = "\n".join("    pass" for _ in range(LONGEST_FUNCTION))
    assert long_functions(f"def long():\n{body}\n") == ["long (81 lines)"]
    assert long_functions(f"def fits():\n{body.removesuffix('    pass')}\n") == []


@pytest.mark.parametrize(
    "source",
    [
        "torch = pytest.importorskip('torch')",
        "@pytest.mark.skipif(importlib.util.find_spec('ray') is None, reason='no ray')\ndef test_it(): ...",
        "HAS = find_spec('ray') is not None\npytestmark = pytest.mark.skipif(not HAS, reason='no ray')",
        "try:\n    import ray\nexcept ImportError:\n    ray = None\nneeds = pytest.mark.skipif(ray is None, reason='no ray')",
        "try:\n    import ray\nexcept ModuleNotFoundError:\n    pytest.skip('no ray', allow_module_level=True)",
        "def test_it():\n    if find_spec('ray') is None:\n        pytest.skip('no ray')",
    ],
)
def test_the_test_sees_a_planted_skip(source: str) -> None:
    assert package_skips(source)


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a CUDA device')\ndef test_it(): ...",
        "def test_it(box):\n    if box.level is Level.LANDLOCK:\n        pytest.skip('no processes at this level')",
        "if find_spec('ray') is None:\n    raise ConfigError('no ray')",
    ],
)
def test_the_test_lets_other_skips_pass(source: str) -> None:
    assert package_skips(source) == []
