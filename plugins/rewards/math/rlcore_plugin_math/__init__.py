"""Rewards for mathematics. This module only declares them; the judging code is imported in the worker processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcore.api import RewardSpec, hookimpl

if TYPE_CHECKING:
    from rlcore.api import Prompt

rlcore_api = "2.0"

_BOXED_PROMPT = "Work through the problem step by step, then give your final answer within \\boxed{}."
_TAGS_PROMPT = (
    "First reason about the problem inside <think> </think>. Then write the final answer, and nothing else, inside "
    "<answer> </answer>: <think> your reasoning </think> <answer> your final answer </answer>"
)

BOXED = RewardSpec(
    name="boxed",
    target="rlcore_plugin_math.rewards:BoxedReward",
    config="rlcore_plugin_math.options:BoxedOptions",
    summary="The answer in the last \\boxed{} equals gt_answer, as mathematics or as text",
    requires=("gt_answer",),
    gold="answer",
    full_value_option="correct_score",
    system_prompt=_BOXED_PROMPT,
    pure_check=True,
    audit="rlcore_plugin_math.audit:boxed_cases",
)
THINK_ANSWER = RewardSpec(
    name="think_answer_tags",
    target="rlcore_plugin_math.rewards:ThinkAnswerReward",
    config="rlcore_plugin_math.options:ThinkAnswerOptions",
    summary="<think>…</think><answer>…</answer>, each tag once and in order; the answer equals gt_answer",
    requires=("gt_answer",),
    gold="answer",
    full_value_option="correct_score",
    system_prompt=_TAGS_PROMPT,
    stop=("</answer>",),
    pure_check=True,
    audit="rlcore_plugin_math.audit:think_answer_cases",
)


@hookimpl
def rlcore_register_rewards() -> list[RewardSpec]:
    """Return the two ways in which a model is asked to mark its answer; equality means the same in both."""
    return [BOXED, THINK_ANSWER]


@hookimpl
def rlcore_note_data(config: Any, data: Mapping[str, Sequence[Prompt]]) -> list[str]:
    """Return a note for each data set whose prompts ask for another mark of the answer than ``boxed`` reads."""
    from rlcore_plugin_math.answer_marks import notes

    return list(notes(config, data))
