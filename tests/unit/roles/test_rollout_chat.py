"""The conversation of a rollout in logs and figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlcore.contracts.metric_names import metric_of
from rlcore.contracts.types import FinishReason, Group, Message, Rollout, RolloutBranch, Score, Segment
from rlcore.roles.evaluator import Evaluation
from rlcore.roles.producer import GroupJob, ProducedGroup
from rlcore.roles.rollout_chat import chat_of, extra_figures
from rlcore.runtime.batch_report import Batch, batch_figures, rollout_rows

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}


def segment(*mask: bool) -> Segment:
    count = len(mask)
    return Segment(context_ids=[1], token_ids=[5] * count, logprobs=[-1.0] * count, versions=[0] * count, policy_mask=mask)  # type: ignore[arg-type]


def branches(**changes: Any) -> Rollout:
    """Two segments: an answer with a tool call, its result and an empty answer; then a branch with an answer."""
    turns = (
        Message(role="assistant", content="a[1]", policy=True, tool_calls=(CALL,), inserted=((1, 4),)),
        Message(role="tool", content="2", name="add"),
        Message(role="assistant", content="", policy=True),
        Message(role="user", content="again"),
        Message(role="assistant", content="c", policy=True),
    )
    segments = (segment(True, False, True, False), segment(True))
    made = Rollout(prompt_id="p", index=0, segments=segments, text="c", finish=FinishReason.STOP, turns=turns, turn_lengths=(2, 0, 1))
    return replace(made, **changes)


def test_a_row_tells_who_wrote_each_message_where_and_how_long_it_is() -> None:
    found = chat_of(branches(extra={"right": True, "note": "x"}), Score(value=1.0, turn_rewards=(0.5, 0.0, 0.5)))
    assert found["turn_rewards"] == [0.5, 0.0, 0.5]
    assert found["extra"] == {"right": True}
    first, result, empty, user, last = found["turns"]
    assert first == {
        "role": "assistant",
        "content": "a[1]",
        "tool_calls": [CALL],
        "policy": True,
        "inserted": [[1, 4]],
        "tokens": 2,
        "segment": 0,
    }
    assert result == {"role": "tool", "content": "2", "name": "add", "policy": False}
    assert (empty["tokens"], last["tokens"], last["segment"]) == (0, 1, 1)
    assert user == {"role": "user", "content": "again", "policy": False}


def test_a_row_has_the_reward_of_each_branch() -> None:
    parts = (RolloutBranch(1, "white"), RolloutBranch(1, "black"))
    assert chat_of(branches(branches=parts), Score(value=0.0, branch_values=(6.0, -6.0)))["branches"] == [[1, 6.0], [1, -6.0]]
    assert "branches" not in chat_of(branches(branches=parts), Score(value=0.0))


def test_an_answer_with_a_name_is_more_than_its_text() -> None:
    answer = Message(role="assistant", content="a", policy=True)
    assert (answer.plain_answer, replace(answer, name="white").plain_answer) == (True, False)


def test_a_row_has_only_what_is_known() -> None:
    unknown = chat_of(branches(turn_lengths=()), Score(value=1.0))["turns"]
    assert [set(turn) & {"tokens", "segment"} for turn in unknown] == [set()] * 5
    one = branches(segments=(segment(True, True, True),))
    assert "segment" not in chat_of(one, Score(value=1.0))["turns"][0]
    assert chat_of(branches(turns=()), Score(value=1.0)) == {}


def test_numbers_of_a_conversation_are_means_over_the_rollouts_that_have_them() -> None:
    extras: list[dict[str, Any]] = [{"calls": 2, "won": True, "note": "x"}, {"calls": 5}, {"won": False, "calls": float("nan")}, {}]
    assert extra_figures(extras) == {"conversation/calls": 3.5, "conversation/won": 0.5}


@pytest.mark.parametrize("name", ["a" * 65, "", "a\nb", "<b>", "a;b", 3])
def test_a_strange_name_has_no_figure(name: Any) -> None:
    assert extra_figures([{name: 1}]) == {}


def test_a_number_that_no_figure_holds_is_left_out() -> None:
    assert extra_figures([{"a": 10**400, "b": float("inf"), "c": -(10**400), "d": None, "e": "1", "f": [1]}]) == {}


def test_there_are_few_names_however_many_a_conversation_gives() -> None:
    found = extra_figures([{f"{number:03}": number for number in range(99, -1, -1)}])
    assert list(found) == [f"conversation/{number:03}" for number in range(32)]


def test_the_figures_are_in_training_and_in_evaluations() -> None:
    rollouts = (branches(extra={"calls": 1}), branches(index=1, extra={"calls": 2}))
    scores = (Score(value=1.0, accuracy=1.0),) * 2
    group = Group(prompt_id="p", episode=0, prompt_index=0, rollouts=rollouts, scores=scores)
    batch = Batch(groups=(group,), masked=frozenset(), version=0)
    assert batch_figures(batch)["conversation/calls"] == 1.5
    assert [row["extra"] for row in rollout_rows(batch)] == [{"calls": 1}, {"calls": 2}]
    prompt: Any = type("Prompt", (), {"prompt_id": "p", "messages": (), "columns": {}})()
    job = GroupJob(key=1, prompt=prompt, samplings=(), noise=(0, 0, 0))
    (report,) = Evaluation([("t", job)]).reports([ProducedGroup(job=job, rollouts=rollouts, scores=scores)])
    assert report.figures()["eval/t/conversation/calls"] == 1.5
    assert [row["turns"][0]["tool_calls"] for row in report.rows] == [[CALL]] * 2
    names = ("conversation/calls", "eval/t/conversation/a/b")
    assert [metric.name for name in names if (metric := metric_of(name))] == ["conversation/<name>", "eval/<task>/conversation/<name>"]
