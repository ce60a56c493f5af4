"""INTELLECT-3 (`PrimeIntellect/INTELLECT-3-RL`), its configuration ``code``: ``question``, and ``info``, JSON with ``tests``, which is JSON
again: ``{"inputs", "outputs"}``, with ``fn_name`` if a function is tested.

https://huggingface.co/datasets/PrimeIntellect/INTELLECT-3-RL; Prime Intellect's environment `i3_code`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.digits import read_json
from rlcore_plugin_code.rows.listed import listed_tests
from rlcore_plugin_code.rows.reading import function_prompt, said, stdin_prompt, table_in, text_in, whole

__all__ = ["intellect3_row", "is_intellect3"]


def is_intellect3(row: Mapping[Any, Any]) -> bool:
    """Return whether the row has a question, and tests in ``info``."""
    info = row.get("info")
    if isinstance(info, str) and '"tests"' in info:
        try:
            info = read_json(info)
        except (ValueError, RecursionError):
            return False
    published = "answer" in row or any(str(name).startswith("avg@") for name in row)
    return said(row.get("question")) and published and isinstance(info, Mapping) and "tests" in info


def intellect3_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row. A function may be a method of the class ``Solution``."""
    info = table_in(row, "info")
    if not isinstance(info, Mapping):
        raise BadRow('"info" must be an object with tests, or JSON of one')
    tests = listed_tests(table_in({"info.tests": info.get("tests")}, "info.tests"), "info.tests")
    question = text_in(row, "question")
    return whole(row, function_prompt(question) if "fn_name" in tests else stdin_prompt(question), tests)
