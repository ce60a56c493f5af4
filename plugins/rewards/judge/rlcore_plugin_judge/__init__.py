"""Rewards that ask a language model at an OpenAI-compatible address. This module only declares them."""

from __future__ import annotations

from typing import Any

from rlcore.api import RewardSpec, hookimpl

rlcore_api = "2.0"

_DEADLINE = 180.0
_NAMES = ("llm_judge", "llm_pairwise")


@hookimpl
def rlcore_register_rewards() -> list[RewardSpec]:
    """Return the rewards: a mark by a rubric, and a comparison with an answer of the row."""
    return [
        RewardSpec(
            name="llm_judge",
            target="rlcore_plugin_judge.llm_judge:LlmJudge",
            config="rlcore_plugin_judge.judge_options:JudgeOptions",
            summary="A mark by your rubric from a language model at an OpenAI-compatible address; cached, within a budget",
            full_value_option="correct_score",
            deadline=_DEADLINE,
        ),
        RewardSpec(
            name="llm_pairwise",
            target="rlcore_plugin_judge.llm_judge:LlmPairwise",
            config="rlcore_plugin_judge.judge_options:PairwiseOptions",
            summary="Whether a language model finds the response better than the row's reference answer, asked in both orders",
            full_value_option="correct_score",
            deadline=_DEADLINE,
        ),
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """Return an error if the deadline of the engine leaves no time for one request, since slow replies would be paid for and dropped."""
    return [problem for entry in config.rewards if entry.name.lower() in _NAMES and (problem := _deadline_problem(entry))]


def _deadline_problem(entry: Any) -> str:
    seconds = entry.options["request_seconds"]
    if entry.deadline >= seconds:
        return ""
    return (
        f"reward {entry.name}: deadline = {entry.deadline:g} is below request_seconds = {seconds:g}, so a reply may come too late; "
        f"type --reward-deadline {seconds:g}, or lower request_seconds"
    )
