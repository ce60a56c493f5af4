"""The reward for programs. This module only declares it; what judges is imported in the worker processes."""

from __future__ import annotations

from typing import Any

from rlcore.api import RewardSpec, hookimpl

rlcore_api = "1.0"

_DEADLINE = 60.0
_PROMPT = (
    "You are a helpful assistant who solves programming problems. Think the problem through, then answer with one complete Python program "
    "in a ```python block. The program reads its input from standard input and writes its output, and nothing else, to standard output."
)


@hookimpl
def rlcore_register_rewards() -> list[RewardSpec]:
    """One reward: every test case of the row must pass."""
    return [
        RewardSpec(
            name="code",
            target="rlcore_plugin_code.reward:CodeReward",
            config="rlcore_plugin_code.options:CodeOptions",
            summary="The last fenced Python program passes every test case of the row, each run in a sandbox of its own",
            requires=("test_cases",),
            full_value_option="correct_score",
            system_prompt=_PROMPT,
            deadline=_DEADLINE,
            audit="rlcore_plugin_code.audit:cases",
        )
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """The deadline of the engine must leave room for the reward's own limits, or hanging programs would be masked instead of wrong."""
    return [problem for entry in config.rewards if entry.name.lower() == "code" and (problem := _deadline_problem(entry))]


def _deadline_problem(entry: Any) -> str:
    total, wall = entry.options["total_seconds"], entry.options["wall_seconds"]
    if entry.deadline >= total + wall:
        return ""
    return (
        f"reward code: deadline = {entry.deadline:g} is below total_seconds + wall_seconds = {total:g} + {wall:g}, so a slow program would "
        f"end as a masked timeout instead of a wrong answer; type --reward-deadline {total + wall:g}, or lower total_seconds"
    )
