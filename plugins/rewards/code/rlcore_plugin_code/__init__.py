"""The reward for programs. This module only declares it; the judging code is imported in the worker processes."""

from __future__ import annotations

from typing import Any

from rlcore.api import RewardSpec, RowFormatSpec, hookimpl

rlcore_api = "2.0"

_DEADLINE = 60.0
_PROMPT = (
    "You are a helpful assistant who solves programming problems. Think the problem through, then answer with one complete Python program "
    "in a ```python block. Unless a function or class is asked for, the program reads its input from standard input and writes its output, "
    "and nothing else, to standard output."
)

REWARD = RewardSpec(
    name="code",
    target="rlcore_plugin_code.reward:CodeReward",
    config="rlcore_plugin_code.options:CodeOptions",
    summary="The last fenced program passes every test of the row, run in a sandbox: by its output, by calls, or by test code",
    requires=("test_cases",),
    full_value_option="correct_score",
    system_prompt=_PROMPT,
    deadline=_DEADLINE,
    pure_check=True,
    audit="rlcore_plugin_code.audit:cases",
)


@hookimpl
def rlcore_register_rewards() -> list[RewardSpec]:
    """Return the only reward: every test case of the row must pass."""
    return [REWARD]


_ROW_FORMATS = (
    ("apps", "Apps", "APPS: question, starter_code, tests as JSON in input_output"),
    ("taco", "Taco", "TACO: question, starter_code, tests as JSON in input_output"),
    ("code_contests", "CodeContests", "CodeContests: description, public_tests, private_tests, generated_tests"),
    ("livecodebench", "LiveCodeBench", "LiveCodeBench: public and private test cases, packed or not"),
    ("humaneval", "HumanEval", "HumanEval and HumanEval+: prompt, entry_point, test"),
    ("mbpp", "Mbpp", "MBPP, sanitized MBPP and MBPP+: code, test_list"),
    ("prime_code", "Eurus", "rows of code in PRIME's Eurus-2-RL-Data: prompt, reward_model.ground_truth"),
    ("prime_intellect", "PrimeIntellect", "rows of code of Prime Intellect, also SYNTHETIC-2 and INTELLECT-2: prompt, verification_info"),
    ("intellect3_code", "Intellect3Code", "rows of code of INTELLECT-3: question, info.tests"),
    ("deepcoder", "DeepCoder", "DeepCoder (lcbv5, primeintellect, taco, codeforces): problem, tests"),
    ("rllm_code", "RllmCode", "rows of rllm with tests: question, ground_truth, data_source"),
    ("codeforces", "Codeforces", "open-r1's Codeforces: description, official_tests, generated_checker"),
    ("kodcode", "KodCode", "KodCode: question, test, test_info"),
    ("leetcode", "LeetCode", "LeetCodeDataset: problem_description, starter_code, entry_point, test"),
    ("dolci_code", "DolciCode", "rows of code of Dolci: prompt, dataset, ground_truth"),
)


@hookimpl
def rlcore_register_row_formats() -> list[RowFormatSpec]:
    """Return row formats for published data sets of programming problems."""
    return [
        RowFormatSpec(name=name, target=f"rlcore_plugin_code.rows.formats:{kind}", summary=summary) for name, kind, summary in _ROW_FORMATS
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """Return an error if the deadline of the engine does not exceed the reward's own limits: hanging programs would be masked instead of
    wrong."""
    return [problem for entry in config.rewards if entry.name.lower() == "code" and (problem := _deadline_problem(entry))]


def _deadline_problem(entry: Any) -> str:
    total, wall = entry.options["total_seconds"], entry.options["wall_seconds"]
    if entry.deadline >= total + wall:
        return ""
    return (
        f"reward code: deadline = {entry.deadline:g} is below total_seconds + wall_seconds = {total:g} + {wall:g}, so a slow program would "
        f"end as a masked timeout instead of a wrong answer; type --reward-deadline {total + wall:g}, or lower total_seconds"
    )
