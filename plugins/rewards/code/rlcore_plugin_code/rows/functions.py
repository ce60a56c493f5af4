"""HumanEval, HumanEval+, MBPP, MBPP+: functions with tests in Python.

https://huggingface.co/datasets/openai/openai_humaneval, https://huggingface.co/datasets/evalplus/humanevalplus,
https://huggingface.co/datasets/google-research-datasets/mbpp, https://huggingface.co/datasets/evalplus/mbppplus
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.rows.reading import function_prompt, has, text_in, texts_in, whole

__all__ = ["humaneval_row", "is_humaneval", "is_mbpp", "mbpp_row"]

_IMPORT = re.compile(r"^(?:import|from)[ \t]+[A-Za-z_][^\n(\\]*$", re.MULTILINE)
_DEFINED = re.compile(r"^(?:def|class)[ \t]+(\w+)", re.MULTILINE)


def is_humaneval(row: Mapping[Any, Any]) -> bool:
    """Return whether the row is of HumanEval or HumanEval+, which have the same columns. Their entry point is a function that the prompt
    begins; LeetCodeDataset has these columns too, and a method there."""
    if not has(row, "task_id", "prompt", "test", "entry_point") or not isinstance(row["prompt"], str):
        return False
    entry = str(row["entry_point"])
    return entry.isidentifier() and re.search(rf"\bdef\s+{entry}\b", row["prompt"]) is not None


def humaneval_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row. The prompt is the beginning of the program, with its helpers; the test defines ``check(candidate)``. A program may
    use what the test imports, because the published judge runs both in one module."""
    stub, name, test = text_in(row, "prompt"), text_in(row, "entry_point"), text_in(row, "test")
    tests = {"check": test, "entry_point": name, "before": _after_imports(test, stub)}
    return whole(row, function_prompt(f"Complete the function `{name}`.", stub), tests, row.get("task_id"))


def is_mbpp(row: Mapping[Any, Any]) -> bool:
    """Return whether the row is of MBPP, its sanitized version, or MBPP+."""
    return has(row, "task_id", "code", "test_list") and ("text" in row or "prompt" in row)


def mbpp_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row. Each entry of ``test_list`` is a test; in MBPP+ the code in ``test`` is one test, with many inputs. A program may use
    what the row imports, because the published judge runs both in one module."""
    asserts = texts_in(row, "test_list")
    if not asserts:
        raise BadRow('"test_list" must be a list of assert statements')
    problem = text_in(row, "text" if row.get("text") else "prompt")
    names = _DEFINED.findall(str(row.get("code") or ""))
    setup = "\n".join(
        [*texts_in(row, "test_imports"), *texts_in({"test_setup_code": [row.get("test_setup_code") or ""]}, "test_setup_code")]
    )
    setup = setup.strip()
    said = "\n".join([*asserts, setup, str(row.get("test") or "")])
    called = [name for name in names if re.search(rf"\b{name}\b", said)]
    tests: dict[str, Any] = {"names": called or names[-1:]}
    if row.get("test"):
        tests["test_file"] = f"{setup}\n{text_in(row, 'test')}"
    else:
        tests |= {"asserts": asserts, "setup": setup}
    if imports := _after_imports(f"{setup}\n{row.get('test') or ''}"):
        tests["before"] = imports
    example = f"Your code should pass this test:\n\n```\n{asserts[0]}\n```"
    return whole(row, function_prompt(f"{problem.strip()}\n\n{example}"), tests, row.get("task_id"))


def _after_imports(tests: str, stub: str = "") -> str:
    """Return the stub after the imports of the tests that it lacks."""
    there = stub.splitlines()
    missing = [line for line in dict.fromkeys(map(str.rstrip, _IMPORT.findall(tests))) if line not in there]
    return "\n".join([*missing, stub]) if missing else stub
