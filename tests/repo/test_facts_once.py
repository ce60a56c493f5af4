"""Facts that the code decides in one place."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.syntax import nodes

ROOT = Path(__file__).parents[2]
CODE = sorted([*(ROOT / "rlcore").rglob("*.py"), *(ROOT / "plugins").glob("*/*/rlcore_plugin_*/**/*.py")])
"""The modules of the core and of the plugins, without their tests."""


def _compared_with_zero(node: ast.AST) -> bool:
    """Return whether a comparison asks if an attribute ``max_staleness`` is 0."""
    if not isinstance(node, ast.Compare) or len(node.comparators) != 1:
        return False
    right = node.comparators[0]
    named = any(isinstance(one, ast.Attribute) and one.attr == "max_staleness" for one in ast.walk(node.left))
    return named and isinstance(right, ast.Constant) and right.value == 0


def test_only_the_property_alternating_compares_the_staleness_with_zero() -> None:
    found = {}
    for path in CODE:
        source = path.read_text(encoding="utf-8")
        if "max_staleness" in source and (count := sum(map(_compared_with_zero, nodes(source)))):
            found[path.relative_to(ROOT).as_posix()] = (count, source.count("def alternating(self)"))
    assert {path: both for path, both in found.items() if both != (1, 1)} == {}
    assert "rlcore/config/run_config.py" in found
