"""Nothing is logged below the level that users see: no part of rlcore enables another, so nobody would read it."""

from __future__ import annotations

import ast
import re

import pytest

from tests.repo.test_layout import ROOT
from tests.syntax import nodes


def quiet_logs(source: str) -> list[int]:
    """Lines that log at DEBUG or INFO."""
    if not re.search(r"\b(debug|info)\b", source):
        return []
    calls = [node.func for node in nodes(source) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return [call.lineno for call in calls if call.attr in ("debug", "info") and "log" in ast.unparse(call.value).lower()]


def test_what_is_logged_is_seen() -> None:
    files = [*(ROOT / "rlcore").rglob("*.py"), *(ROOT / "plugins").glob("*/*/rlcore_plugin_*/**/*.py")]
    assert [f"{path.relative_to(ROOT)}:{line}" for path in files for line in quiet_logs(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("logger", ["_log", "logging", "logging.getLogger(__name__)", "self._logger"])
def test_a_planted_line_is_found(logger: str) -> None:
    assert quiet_logs(f"{logger}.warning('x')\n{logger}.info('x')\n{logger}.debug('x')\n") == [2, 3]
