"""docs/reference/errors.md quotes messages that rlcore and its plugins can print, and exceptions and exit codes that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import rlcore.api

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
MESSAGES = [quoted for line in re.findall(r"^- (`.*`)\\$", PAGE, re.MULTILINE) for quoted in re.findall(r"`([^`]+)`", line)]
ENDS = re.compile(r"^\W+|\W+$")


@cache
def texts() -> str:
    """Every text of the sources, one to a line; the values of a formatted text are ``…``."""
    found = []
    for folder in ("rlcore", "plugins"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "tests" not in path.parts and "testing" not in path.parts:
                found += [text(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    return "\n".join(found)


def text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(text(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def lost(message: str) -> list[str]:
    """The parts of a quoted message, between its values, that no text of the sources holds."""
    parts = [ENDS.sub("", part) for part in message.split("…")]
    return [part for part in parts if part and part not in texts()]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_message_is_in_the_sources(message: str) -> None:
    assert lost(message) == []
    assert max(map(len, message.split("…"))) >= 12, "too little of it is quoted to find it"


def test_a_message_that_changed_is_noticed() -> None:
    assert lost("there is no configuration file …; type a path of a TOML file") == ["type a path of a TOML file"]


def test_there_are_many_and_none_twice() -> None:
    assert len(MESSAGES) == len(set(MESSAGES)) >= 40


def test_the_table_of_exceptions_is_complete_and_has_their_exit_codes() -> None:
    rows = re.findall(r"^\| `(\w+)(?:\((\w+)\))?` \| .* \| (\d+) \|$", PAGE, re.MULTILINE)
    assert {name for name, *_ in rows} == {name for name in vars(rlcore.api)["__all__"] if name.endswith("Error")}
    for name, parent, code in rows:
        error = getattr(rlcore.api, name)
        assert error.exit_code == int(code)
        assert error.__base__.__name__ == (parent or "Exception")
