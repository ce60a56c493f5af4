"""Functions for all converters: columns that contain JSON as text, and the words around a problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.digits import read_json

__all__ = ["function_prompt", "has", "joined_tests", "said", "stdin_prompt", "table_in", "text_in", "texts_in", "whole"]

_STDIN = "Write a complete program that reads standard input and writes standard output. Put it in a ```python block."
_FUNCTION = "Define it in a ```python block, under the name that is asked for."


def has(row: Mapping[Any, Any], *names: str) -> bool:
    """Return whether the row has all of these columns, empty or not."""
    return all(name in row for name in names)


def said(value: Any) -> bool:
    """Return whether the value is text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def text_in(row: Mapping[Any, Any], name: str) -> str:
    """Return the column, which must be text that is not blank; BadRow otherwise."""
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f'"{name}" must be text that is not empty')
    return value


def texts_in(row: Mapping[Any, Any], name: str) -> list[str]:
    """Return the column, which may be missing, and otherwise must be a list of texts; BadRow if it is neither."""
    value = row.get(name)
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise BadRow(f'"{name}" must be a list of texts')
    return list(value)


def table_in(row: Mapping[Any, Any], name: str) -> Any:
    """Return the column, which may be a JSON text; BadRow if it is not JSON, missing, or empty."""
    value = row.get(name)
    if isinstance(value, str):
        if not value.strip():
            raise BadRow(f'"{name}" is empty: this row has no tests')
        try:
            value = read_json(value)
        except (ValueError, RecursionError) as error:
            raise BadRow(f'"{name}" is text that is not JSON ({str(error)[:80]})') from None
    if value is None:
        raise BadRow(f'"{name}" is missing: this row has no tests')
    return value


def stdin_prompt(problem: str) -> list[dict[str, str]]:
    """Return a problem whose program reads standard input, as messages."""
    return [{"role": "user", "content": f"{problem.strip()}\n\n{_STDIN}"}]


def function_prompt(problem: str, start: str = "") -> list[dict[str, str]]:
    """Return a problem that asks for a function, as messages; ``start``: code to begin with."""
    stub = f"\n\n```python\n{start.strip()}\n```" if start.strip() else ""
    return [{"role": "user", "content": f"{problem.strip()}{stub}\n\n{_FUNCTION}"}]


def whole(row: Mapping[Any, Any], messages: list[dict[str, str]], tests: Mapping[str, Any], name: Any = None) -> dict[str, Any]:
    """Return the row of rlcore; ``name`` becomes its id."""
    known = {} if name is None or name == "" else {"id": str(name)}
    return {**known, "messages": messages, "test_cases": dict(tests)}


def joined_tests(*tables: Any) -> tuple[list[Any], list[Any]]:
    """Return (inputs, outputs) of several tables ``{"input": [...], "output": [...]}``, or lists of ``{"input": ..., "output": ...}``."""
    inputs: list[Any] = []
    outputs: list[Any] = []
    for table in tables:
        if isinstance(table, Mapping):
            inputs += list(table.get("input") or ())
            outputs += list(table.get("output") or ())
        elif table is not None:
            for test in table:
                inputs.append(test["input"])
                outputs.append(test["output"])
    return inputs, outputs
