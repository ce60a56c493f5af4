"""KodCode (`KodCode/KodCode-V1`, `KodCode-Light-RL-10K`): ``question``, ``test`` (a file for pytest that imports from ``solution``), and
``test_info`` with the names and declarations of the tested functions. The style ``complete`` has the beginning of a program as its
question; in ``online_judge`` (V1.1) ``test`` is JSON ``{"stdin": [...], "stdout": [...]}``.

https://huggingface.co/datasets/KodCode/KodCode-V1, https://huggingface.co/datasets/KodCode/KodCode-Light-RL-10K,
https://github.com/KodCode-AI/kodcode
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore_plugin_code.rows.apps import tests_of
from rlcore_plugin_code.rows.reading import function_prompt, has, said, stdin_prompt, table_in, text_in, whole

__all__ = ["is_kodcode", "kodcode_row"]


def is_kodcode(row: Mapping[Any, Any]) -> bool:
    """Return whether the row has its columns."""
    return has(row, "style", "subset", "solution", "test_info") and said(row.get("question")) and isinstance(row.get(_test(row)), str)


def kodcode_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row with the test file as it is, or with tests of standard input."""
    question, test = text_in(row, "question"), text_in(row, _test(row))
    if test.lstrip().startswith("{"):
        table = table_in(row, _test(row))
        tests = tests_of({"inputs": table.get("stdin"), "outputs": table.get("stdout")})
        return whole(row, stdin_prompt(question), tests, row.get("question_id"))
    tests = {"test_file": test, "module": "solution", "names": _tested(row, "function_name")}
    if row.get("style") == "complete":
        messages = function_prompt("Complete this program.", question)
    else:
        messages = function_prompt(question, "\n".join(_tested(row, "function_declaration")))
    return whole(row, messages, tests, row.get("question_id"))


def _test(row: Mapping[Any, Any]) -> str:
    """Return the column of the tests: early versions of the set name it ``test_code``."""
    return "test" if row.get("test") is not None else "test_code"


def _tested(row: Mapping[Any, Any], name: str) -> list[str]:
    """Return one field of each tested function: the question may not name it."""
    info = row.get("test_info")
    entries = info if isinstance(info, list | tuple) else []
    return [entry[name] for entry in entries if isinstance(entry, Mapping) and said(entry.get(name))]
