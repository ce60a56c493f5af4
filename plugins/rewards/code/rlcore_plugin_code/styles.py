"""The styles of tests that the reward knows, distinguished by one key of the column ``test_cases``. A new style is one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlcore_plugin_code.cases import table_of
from rlcore_plugin_code.coded_suite import AssertSuite, CheckSuite, FileSuite
from rlcore_plugin_code.listed_suite import CallSuite, StdinSuite
from rlcore_plugin_code.suite import BadCases, Suite

__all__ = ["STYLES", "Style", "read_suite"]


@dataclass(frozen=True, slots=True)
class Style:
    """One style. ``key``: the key of the column that identifies it."""

    key: str
    summary: str
    suite: Callable[[Mapping[str, Any]], Suite]


STYLES: tuple[Style, ...] = (
    Style("fn_name", "a function, or a method of the class Solution, is called with each of `inputs`", CallSuite),
    Style("asserts", "assert statements, as in MBPP", AssertSuite),
    Style("check", "code with `check(candidate)`, as in HumanEval", CheckSuite),
    Style("test_file", "a file of tests for pytest or unittest", FileSuite),
)
"""Styles with their own key; without any of these keys the program reads standard input (``StdinSuite``)."""


def read_suite(column: Any) -> Suite:
    """Return the tests of a row, from its column ``test_cases``.

    :raises BadCases: they cannot be used; the message says why in one sentence.
    """
    table = table_of(column)
    found = [style for style in STYLES if table.get(style.key)]
    if len(found) > 1:
        raise BadCases(f"test_cases has both {found[0].key} and {found[1].key}; a row has tests of one style")
    return found[0].suite(table) if found else StdinSuite(table)
