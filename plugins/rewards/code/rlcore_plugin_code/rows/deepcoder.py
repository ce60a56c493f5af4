"""DeepCoder (`agentica-org/DeepCoder-Preview-Dataset`): ``problem``, and ``tests`` as JSON. Its configurations write the tests differently:
lcbv5 and codeforces as a list with ``testtype`` (the name of a function is in ``metadata``), primeintellect as a list with ``type`` and
``fn_name``, taco as one table. And the rows that rllm makes of them: ``question``, ``ground_truth`` (the tests), ``data_source``.

https://huggingface.co/datasets/agentica-org/DeepCoder-Preview-Dataset; rllm, `examples/deepcoder/prepare_deepcoder_data.py` and
`rllm/data/dataset.py`; tinker-cookbook, `code_rl/code_env.py`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.digits import read_json
from rlcore_plugin_code.rows.listed import holds_tests, listed_tests
from rlcore_plugin_code.rows.reading import function_prompt, said, stdin_prompt, table_in, text_in, whole

__all__ = ["deepcoder_row", "is_deepcoder", "is_rllm_code", "rllm_code_row"]

_OTHERS = frozenset({"answer", "solution", "question", "prompt", "messages", "test_cases"})
_PLACEHOLDER = "placeholder"


def is_deepcoder(row: Mapping[Any, Any]) -> bool:
    """Return whether the row has a problem, and tests in one of the shapes."""
    return said(row.get("problem")) and _OTHERS.isdisjoint(row) and holds_tests(row.get("tests"))


def deepcoder_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row."""
    tests = listed_tests(table_in(row, "tests"), "tests", _metadata(row))
    problem, start = text_in(row, "problem"), str(row.get("starter_code") or "")
    return whole(row, function_prompt(problem, start) if "fn_name" in tests else stdin_prompt(problem), tests)


def is_rllm_code(row: Mapping[Any, Any]) -> bool:
    """Return whether it is a row of rllm whose ground truth consists of tests."""
    row = _unwrapped(row)
    return said(row.get("question")) and said(row.get("data_source")) and holds_tests(row.get("ground_truth"))


def rllm_code_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row. Its question already says how to answer."""
    row = _unwrapped(row)
    tests = listed_tests(table_in(row, "ground_truth"), "ground_truth", _metadata(row))
    return whole(row, [{"role": "user", "content": text_in(row, "question")}], tests, row.get("uid"))


def _unwrapped(row: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the row that rllm wraps for verl: it is in ``extra_info``, and the prompt is the word "placeholder"."""
    prompt, inner = row.get("prompt"), row.get("extra_info")
    first = prompt[0] if isinstance(prompt, list | tuple) and len(prompt) == 1 else None
    wrapped = isinstance(first, Mapping) and first.get("content") == _PLACEHOLDER and isinstance(inner, Mapping)
    return inner if wrapped and isinstance(inner, Mapping) else row


def _metadata(row: Mapping[Any, Any]) -> Any:
    """Return the column ``metadata``, which may be missing, or JSON in a text."""
    value = row.get("metadata")
    if not isinstance(value, str) or not value.strip():
        return value
    try:
        return read_json(value)
    except (ValueError, RecursionError) as error:
        raise BadRow(f'"metadata" is text that is not JSON ({str(error)[:80]})') from None
