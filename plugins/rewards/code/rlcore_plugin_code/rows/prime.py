"""PRIME (`PRIME-RL/Eurus-2-RL-Data`): chat messages in ``prompt``, tests as JSON in ``reward_model.ground_truth``; its rows of mathematics
are for another reward.

And rows of code of Prime Intellect (`verifiable-coding-problems`, SYNTHETIC-1, `SYNTHETIC-2-RL`, `INTELLECT-2-RL-Dataset`): ``prompt``, and
``verification_info``, JSON with the tests in ``test_cases`` (a list, or one table, or JSON of it) or in ``ground_truth`` (JSON, beside
``dataset_type``).

https://huggingface.co/datasets/PRIME-RL/Eurus-2-RL-Data, https://huggingface.co/datasets/PrimeIntellect/verifiable-coding-problems,
https://huggingface.co/datasets/PrimeIntellect/SYNTHETIC-2-RL, https://huggingface.co/datasets/PrimeIntellect/INTELLECT-2-RL-Dataset; Prime
Intellect's genesys, `verify_deepcoder`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.rows.apps import tests_of
from rlcore_plugin_code.rows.listed import listed_tests
from rlcore_plugin_code.rows.reading import function_prompt, has, stdin_prompt, table_in, text_in, whole

__all__ = ["eurus_row", "is_eurus", "is_prime_intellect", "prime_intellect_row"]

_CODE_TASKS = ("verifiable_code", "prime_rl_code")


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
    if not has(row, "prompt", "verification_info"):
        return False
    return row.get("task_type") in _CODE_TASKS or str(row.get("problem_id")).startswith("prime_rl_code")


def prime_intellect_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row with tests of standard input, or of one function; in Python."""
    if not is_prime_intellect(row):
        raise BadRow(f'the "task_type" of this row is {str(row.get("task_type"))[:40]!r}; the format reads {" and ".join(_CODE_TASKS)}')
    table = table_in(row, "verification_info")
    found = table.get("test_cases") or table.get("ground_truth") if isinstance(table, Mapping) else None
    if not found:
        raise BadRow('"verification_info" must contain test_cases (or ground_truth), a list of tests with input and output')
    name = "verification_info.test_cases" if table.get("test_cases") else "verification_info.ground_truth"
    tests = listed_tests(table_in({name: found}, name), name)
    problem = text_in(row, "prompt")
    messages = function_prompt(problem) if "fn_name" in tests else stdin_prompt(problem)
    return whole(row, messages, tests, row.get("problem_id"))
