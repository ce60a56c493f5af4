"""CodeContests (`deepmind/code_contests`): ``description``, and ``public_tests``, ``private_tests``, ``generated_tests``.

https://huggingface.co/datasets/deepmind/code_contests
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.rows.apps import tests_of
from rlcore_plugin_code.rows.reading import has, joined_tests, stdin_prompt, text_in, whole

__all__ = ["code_contests_row", "is_code_contests"]

_TESTS = ("public_tests", "private_tests", "generated_tests")


def is_code_contests(row: Mapping[Any, Any]) -> bool:
    """Return whether the row has its three columns of tests."""
    return has(row, "description", *_TESTS)


def code_contests_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row with all tests; a problem whose program reads a file cannot be judged."""
    if row.get("input_file") or row.get("output_file"):
        raise BadRow("the program of this row reads or writes a file instead of standard input and output")
    try:
        inputs, outputs = joined_tests(*(row[name] for name in _TESTS))
    except (KeyError, TypeError):
        raise BadRow(f'{", ".join(_TESTS)} must be {{"input": [...], "output": [...]}}') from None
    return whole(row, stdin_prompt(text_in(row, "description")), tests_of({"inputs": inputs, "outputs": outputs}), row.get("name"))
