"""PRIME (`PRIME-RL/Eurus-2-RL-Data`): chat messages in ``prompt``, tests as JSON in ``reward_model.ground_truth``; its rows of mathematics
are for another reward. And `PrimeIntellect/verifiable-coding-problems`: tests in ``verification_info``.

https://huggingface.co/datasets/PRIME-RL/Eurus-2-RL-Data, https://huggingface.co/datasets/PrimeIntellect/verifiable-coding-problems
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.rows.apps import tests_of
from rlcore_plugin_code.rows.reading import function_prompt, has, stdin_prompt, table_in, text_in, whole

__all__ = ["eurus_row", "is_eurus", "is_prime_intellect", "prime_intellect_row"]


def is_eurus(row: Mapping[Any, Any]) -> bool:
    """Return whether the row has verl's columns and the ability ``code``, as PRIME writes it."""
    return has(row, "data_source", "prompt", "reward_model") and row.get("ability") == "code"


def eurus_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row; its prompt already consists of messages."""
    if row.get("ability") != "code":
        raise BadRow(f'the ability of this row is {str(row.get("ability"))[:40]!r}; the format reads only "code"')
    reward_model, messages = row.get("reward_model"), row.get("prompt")
    if not isinstance(reward_model, Mapping):
        raise BadRow('"reward_model" must be an object with a ground_truth')
    tests = tests_of(table_in(reward_model, "ground_truth"))
    if not isinstance(messages, list | tuple) or not all(isinstance(message, Mapping) for message in messages):
        raise BadRow('"prompt" must be a list of messages')
    extra = row.get("extra_info")
    index = extra.get("index") if isinstance(extra, Mapping) else None
    return whole(row, [dict(message) for message in messages], tests, None if index is None else f"{row.get('data_source')}/{index}")


def is_prime_intellect(row: Mapping[Any, Any]) -> bool:
    """Return whether the row has its columns, and the task about code."""
    return has(row, "prompt", "verification_info", "task_type") and row["task_type"] == "verifiable_code"


def prime_intellect_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row with tests of standard input, or of one function; in Python."""
    table = table_in(row, "verification_info")
    tests = table.get("test_cases") if isinstance(table, Mapping) else None
    if (
        not isinstance(tests, list)
        or not tests
        or not all(isinstance(test, Mapping) and {"input", "output"} <= set(test) for test in tests)
    ):
        raise BadRow('"verification_info" must contain test_cases, a list of tests with input and output')
    names = {test.get("fn_name") or "" for test in tests}
    if len(names) > 1:
        raise BadRow(f"the tests of this row call {len(names)} functions; only one can be judged")
    joined: dict[str, Any] = {"inputs": [test["input"] for test in tests], "outputs": [test["output"] for test in tests]}
    (name,) = names
    problem = text_in(row, "prompt")
    messages = function_prompt(problem) if name else stdin_prompt(problem)
    return whole(row, messages, tests_of({**joined, "fn_name": name}), row.get("problem_id"))
