"""APPS (`codeparrot/apps`) and TACO (`BAAI/TACO`): ``question``, ``starter_code``, and tests as JSON in ``input_output``.

https://huggingface.co/datasets/codeparrot/apps, https://huggingface.co/datasets/BAAI/TACO
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.rows.reading import function_prompt, has, stdin_prompt, table_in, text_in, whole

__all__ = ["apps_row", "is_apps", "is_taco", "tests_of"]


def is_apps(row: Mapping[Any, Any]) -> bool:
    """Return whether the row is of APPS, which numbers its problems."""
    return has(row, "problem_id", "question", "input_output", "starter_code")


def is_taco(row: Mapping[Any, Any]) -> bool:
    """Return whether the row is of TACO, which does not number them."""
    return has(row, "question", "input_output", "starter_code") and "problem_id" not in row


def apps_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a row of either."""
    tests = tests_of(table_in(row, "input_output"))
    question, start = text_in(row, "question"), row.get("starter_code") or ""
    messages = function_prompt(question, start) if "fn_name" in tests else stdin_prompt(question)
    return whole(row, messages, tests, row.get("problem_id"))


def tests_of(table: Any) -> dict[str, Any]:
    """Return ``{"inputs", "outputs"}``, with ``fn_name`` if a function is tested. For standard input, tests that expect no output are left
    out, since a program that does nothing would pass them."""
    if not isinstance(table, Mapping) or not isinstance(table.get("inputs"), list) or not isinstance(table.get("outputs"), list):
        raise BadRow('the tests must be {"inputs": [...], "outputs": [...]}')
    inputs, outputs = table["inputs"], table["outputs"]
    if not inputs and not outputs:
        raise BadRow("the lists of inputs and outputs are empty: this row has no tests")
    if table.get("fn_name"):
        return {"fn_name": table["fn_name"], "inputs": inputs, "outputs": outputs}
    kept = [(given, wanted) for given, wanted in zip(inputs, outputs, strict=False) if _says_something(wanted)]
    if not kept or len(inputs) != len(outputs):
        raise BadRow(f"the row has {len(inputs)} inputs and {len(outputs)} outputs, of which {len(kept)} are tests")
    return {"inputs": [given for given, _ in kept], "outputs": [wanted for _, wanted in kept]}


def _says_something(wanted: Any) -> bool:
    text = "\n".join(wanted) if isinstance(wanted, list) and all(isinstance(line, str) for line in wanted) else wanted
    return not isinstance(text, str) or bool(text.strip())
