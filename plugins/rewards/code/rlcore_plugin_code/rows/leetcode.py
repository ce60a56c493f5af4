"""LeetCodeDataset (`newfacade/LeetCodeDataset`): ``problem_description``, ``starter_code``, and HumanEval's columns with another meaning:
``prompt`` holds only imports and helpers, and ``entry_point`` is a method (``Solution().twoSum``).

https://huggingface.co/datasets/newfacade/LeetCodeDataset, https://github.com/newfacade/LeetCodeDataset
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.rows.reading import function_prompt, has, said, text_in, whole

__all__ = ["is_leetcode", "leetcode_row"]

_METHOD = re.compile(r"([A-Za-z_]\w*)\(\)\.([A-Za-z_]\w*)", re.ASCII)


def is_leetcode(row: Mapping[Any, Any]) -> bool:
    """Return whether the row has its columns, and an entry point that is a method."""
    entry = row.get("entry_point")
    return has(row, "prompt", "test", "starter_code") and said(row.get("problem_description")) and bool(_METHOD.fullmatch(str(entry)))


def leetcode_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row. The program gets the imports and helpers of ``prompt``, as on LeetCode; ``check`` tests the method."""
    entry = text_in(row, "entry_point").strip()
    method = _METHOD.fullmatch(entry)
    if method is None:
        raise BadRow(f'"entry_point" is {entry[:80]!r}; it must be a method of a class, such as Solution().twoSum')
    file = f"{text_in(row, 'test')}\n\n\ndef test_method():\n    check({entry})\n"
    tests = {"test_file": file, "before": str(row.get("prompt") or ""), "names": [method[1]]}
    return whole(row, function_prompt(text_in(row, "problem_description"), text_in(row, "starter_code")), tests, row.get("task_id"))
