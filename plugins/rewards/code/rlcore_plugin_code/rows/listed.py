"""Tests as a list of ``{"input", "output"}``, as PrimeIntellect, LiveCodeBench, DeepCoder, rllm and Dolci publish them, or as one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.digits import read_json
from rlcore_plugin_code.rows.apps import tests_of

__all__ = ["holds_tests", "listed_tests"]

_STDIN = ("", "stdin", "stdin_stdout")
_FUNCTION = ("functional", "function_call")


def holds_tests(value: Any) -> bool:
    """Return whether the value is a table ``{"inputs", "outputs"}``, a list of such tests, or a JSON text of either."""
    if isinstance(value, str):
        if not value.lstrip().startswith(("{", "[")) or '"input' not in value:
            return False
        try:
            value = read_json(value)
        except (ValueError, RecursionError):
            return False
    if isinstance(value, list | tuple):
        return bool(value) and _is_test(value[0])
    return isinstance(value, Mapping) and {"inputs", "outputs"} <= set(value)


def listed_tests(tests: Any, column: str, metadata: Any = None) -> dict[str, Any]:
    """Return ``{"inputs", "outputs"}``, with ``fn_name`` if a function is tested.

    :param column: the name of the column in messages.
    :param metadata: the row's own, which may name the function that all tests call.
    """
    if isinstance(tests, Mapping):
        return tests_of(tests)
    if not isinstance(tests, list | tuple) or not all(_is_test(test) for test in tests):
        raise BadRow(f'"{column}" must be a list of tests with "input" and "output", or {{"inputs": [...], "outputs": [...]}}')
    if not tests:
        raise BadRow(f'"{column}" is an empty list: this row has no tests')
    names = {_function_of(test, column, metadata) for test in tests}
    if len(names) > 1:
        raise BadRow(f'"{column}" has tests of {len(names)} functions, or of a function and of a whole program; only one can be judged')
    table: dict[str, Any] = {"inputs": [test["input"] for test in tests], "outputs": [test["output"] for test in tests]}
    return tests_of({**table, "fn_name": names.pop()})


def _is_test(value: Any) -> bool:
    return isinstance(value, Mapping) and {"input", "output"} <= set(value)


def _function_of(test: Mapping[str, Any], column: str, metadata: Any) -> str:
    """Return the function that a test calls; "" if it runs the program."""
    kind = test.get("testtype") or test.get("type") or ""
    name = test.get("fn_name") or _func_name(test.get("metadata")) or _func_name(metadata)
    if kind in _FUNCTION and name:
        return str(name)
    if kind in _FUNCTION:
        raise BadRow(f'"{column}" has tests of a function, and neither they nor "metadata" name it (func_name)')
    if kind not in _STDIN:
        raise BadRow(f'"{column}" has tests of the type {str(kind)[:40]!r}; only stdin and functional are known')
    return str(test.get("fn_name") or "")


def _func_name(metadata: Any) -> Any:
    return metadata.get("func_name") if isinstance(metadata, Mapping) else None
