"""Every public name has a user: a first-party plugin, the stranger, or an example in the docs. A name without one leaves the page.

Names of the kit, and of the page with which tests run an algorithm, may have the tests of a plugin as their only users.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "rlcore.api",
    *sorted(f"rlcore.api.{path.stem}" for path in (ROOT / "rlcore" / "api").glob("*.py") if path.stem != "__init__"),
    "rlcore.learning",
    "rlcore.testing",
)
FOR_TESTS = ("rlcore.learning", "rlcore.testing")
EXEMPT = {"rlcore.api": {"API_VERSION"}}
"""Errors name it, and people look it up; a plugin writes the number itself."""
TARGET = re.compile(r"\b(rlcore[\w.]*):(\w+)")
"""The target of a spec, in a string."""
FENCE = re.compile(r"^( *)```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def _sources(with_tests: bool) -> Iterator[str]:
    """Yield the text of every user: plugins, the stranger, the Python blocks of the docs; if asked for, tests of plugins and stranger."""
    code, tests = ["plugins/*/*/rlcore_*/**/*.py", "tests/stranger/**/*.py"], []
    if with_tests:
        tests = ["plugins/*/*/tests/**/*.py", "tests/integration/test_stranger_*.py"]
    for pattern in (*code, *tests):
        for path in ROOT.glob(pattern):
            yield path.read_text(encoding="utf-8")
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "plugins").glob("*/*/README.md")):
        yield from (_program(indent, block) for indent, block in FENCE.findall(path.read_text(encoding="utf-8")))


def _program(indent: str, block: str) -> str:
    """Return a fenced block without the indentation of its fence; "" if it is not a whole program."""
    text = "\n".join(line.removeprefix(indent) for line in block.splitlines())
    try:
        ast.parse(text)
    except SyntaxError:
        return ""
    return text


def names_used(source: str) -> Iterator[tuple[str, str]]:
    """Yield (page, name) for every public name that a program imports, or reads from an imported page."""
    bound: dict[str, str] = {}
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.module, alias.name
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from TARGET.findall(node.value)
        if isinstance(node, ast.Attribute) and (owner := _dotted(node.value)):
            first, _, rest = owner.partition(".")
            if first in bound:
                yield ".".join(filter(None, (bound[first], rest))), node.attr


def _dotted(node: ast.expr) -> str:
    """Return ``a.b.c`` of nested attributes of a name, "" of any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    owner = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{owner}.{node.attr}" if owner and isinstance(node, ast.Attribute) else ""


@cache
def _used(with_tests: bool) -> frozenset[tuple[str, str]]:
    return frozenset(use for source in _sources(with_tests) if "rlcore" in source for use in names_used(source))


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_a_page_has_a_user(page: str) -> None:
    used = {name for module, name in _used(page in FOR_TESTS) if module == page}
    without = [name for name in import_module(page).__all__ if name not in used | EXEMPT.get(page, set())]
    assert without == [], f"{page}: no plugin, no stranger and no example in the docs uses these; take them off the page"


def test_uses_are_seen_however_a_page_is_imported() -> None:
    program = """
import rlcore.api
import rlcore.api.weights as weights
from rlcore import api, learning
from rlcore.api import Loss, judging as page
def f():
    from rlcore.testing import LossSuite
    return rlcore.api.Reward, weights.cut_into_buckets, api.Score, learning.policy_ratio, page.Task, page.RewardPool.start
"""
    found = set(names_used(program))
    assert {("rlcore.api", name) for name in ("Loss", "Reward", "Score")} <= found
    assert {("rlcore.api.weights", "cut_into_buckets"), ("rlcore.learning", "policy_ratio"), ("rlcore.testing", "LossSuite")} <= found
    assert {("rlcore.api.judging", "Task"), ("rlcore.api.judging", "RewardPool")} <= found
    assert ("rlcore.api", "Group") not in found
