"""Shapes that must load, and one sentence for each that must not."""

from __future__ import annotations

from typing import Any

import pytest

from rlcore.contracts.specs import RewardSpec
from rlcore.contracts.types import Message, Prompt
from rlcore.data.rows import BadRow, Routes, parse_row

BOXED = RewardSpec(name="boxed", target="m:Boxed", summary="", requires=("gt_answer",), aliases=("box",))
CODE = RewardSpec(name="code", target="m:Code", summary="", requires=("test_cases",))
USER = {"role": "user", "content": "1 + 2"}


def parse(row: object, *specs: RewardSpec) -> Prompt:
    return parse_row(row, index=0, default_id="train:1", source="train.jsonl:1", routes=Routes(specs))


def test_the_math_shape() -> None:
    prompt = parse({"messages": {"role": "user", "content": "..."}, "gt_answer": "3"}, BOXED)
    assert prompt == Prompt(
        prompt_id="train:1", index=0, messages=(Message(role="user", content="..."),), columns={"gt_answer": "3"}, source="train.jsonl:1"
    )


def test_the_code_shape() -> None:
    prompt = parse({"messages": USER, "test_cases": {"inputs": ["3\n2 2 3\n"], "outputs": ["1\n6\n-1\n"]}}, CODE)
    assert prompt.columns["test_cases"] == {"inputs": ["3\n2 2 3\n"], "outputs": ["1\n6\n-1\n"]}


def test_a_column_of_a_reward_is_handed_on_as_it_is() -> None:
    for value in ('{"inputs": ["1"], "outputs": [["2", "3"]]}', {"inputs": [["3", "2 2 3"]], "fn": "f"}, [], 3):
        assert parse({"messages": USER, "test_cases": value}, CODE).columns["test_cases"] == value


def test_a_list_of_messages() -> None:
    turns = [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "3", "tool_calls": None}, USER]
    assert [message.role for message in parse({"messages": turns}).messages] == ["system", "user", "assistant", "user"]


def test_id_and_other_columns_are_kept() -> None:
    prompt = parse({"messages": USER, "id": 7, "level": 2, "unused": None})
    assert (prompt.prompt_id, prompt.columns) == ("7", {"id": 7, "level": 2})


def test_a_route_asks_only_for_the_columns_of_its_reward() -> None:
    assert parse({"messages": USER, "gt_answer": "3", "reward": "BOX"}, BOXED, CODE).reward == "boxed"
    with pytest.raises(BadRow, match=r'no "test_cases", which the reward "code" needs .*name that: \[data.columns\] test_cases'):
        parse({"messages": USER, "gt_answer": "3"}, BOXED, CODE)


M = {"messages": USER}
BAD: list[tuple[Any, str]] = [
    ([1], "a row must be an object like .*, not a list"),
    ("text", "not text"),
    ({"gt_answer": "3"}, 'no "messages" .it has "gt_answer"'),
    ({"messages": None, "gt_answer": "3"}, 'no "messages"'),
    ({"messages": "sort", "gt_answer": "3"}, "one message or a list of messages, not text"),
    ({"messages": [], "gt_answer": "3"}, "an empty list"),
    ({"messages": ["hi"], "gt_answer": "3"}, "message 1 must be an object"),
    ({"messages": {"content": "x"}}, 'message has no "role"'),
    ({"messages": [USER, {"role": "user"}]}, 'message 2 has no "content"'),
    ({"messages": {"role": 1, "content": "x"}}, '"role" must be text, not a number .1.'),
    ({"messages": {"role": "user", "content": ["x"]}}, '"content" must be text, not a list'),
    ({"messages": {"role": "human", "content": "x"}}, 'unknown role "human"; use one of system, user, assistant'),
    ({"messages": [USER, {"role": "assistant", "content": "3"}]}, 'last message has role "assistant"'),
    ({"messages": {"role": "user", "content": "  "}}, "the last message is empty"),
    ({"messages": {**USER, "images": ["a.png"]}}, '"images", which would not reach the model'),
    ({**M}, 'no "gt_answer", which the reward "boxed" needs'),
    ({**M, "answer": "3"}, """if "answer" holds the answer, type --columns '{"gt_answer": "answer"}'"""),
    ({**M, "ground_truth": '{"func_name": "f"}'}, r"""name that: \[data.columns\] gt_answer = "…\""""),
    ({**M, "truth": "3"}, r"""name that: \[data.columns\] gt_answer = "…\""""),
    ({**M, "gt_answer": None}, 'no "gt_answer"'),
    ({**M, "gt_answer": " "}, '"gt_answer" is empty'),
    ({**M, "gt_answer": 3}, '"gt_answer" must be text, not a number .3.; put it in quotes'),
    ({**M, "gt_answer": "3", "reward": "sql"}, 'asks for the reward "sql", but the rewards of this run are: boxed'),
    ({**M, "gt_answer": "3", "reward": 1}, '"reward" must be the name of a reward'),
    ({**M, "gt_answer": "3", "id": True}, '"id" must be text or a whole number'),
    ({**M, "gt_answer": "3", "id": ""}, '"id" must be text or a whole number, not empty'),
    ({**M, "gt_answer": "3", 5: 1}, "column names must be text"),
]


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_a_bad_row_has_its_reason(row: object, reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        parse(row, BOXED)
