"""Rows with tools: their schemas, calls of the assistant and results, in the forms that published data has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlcore.contracts.types import Message, Prompt
from rlcore.data import DataSet
from rlcore.data.rows import BadRow, Routes, parse_row

USER = {"role": "user", "content": "is it raining in Turin?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "sky", "arguments": {"town": "Turin"}}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "tool", "content": "drizzle", "tool_call_id": "c1", "name": "sky"}
SCHEMA = {"type": "function", "function": {"name": "sky", "parameters": {"type": "object", "properties": {"town": {"type": "string"}}}}}


def parse(*messages: Any, **columns: Any) -> Prompt:
    row = {"messages": list(messages), **columns}
    return parse_row(row, index=0, default_id="r:1", source="r.jsonl:1", routes=Routes())


def test_a_call_and_its_result_reach_the_prompt() -> None:
    _, asks, answer = parse(USER, ASKS, ANSWER).messages
    assert asks == Message(role="assistant", content="", tool_calls=(CALL,))
    assert answer == Message(role="tool", content="drizzle", tool_call_id="c1", name="sky")
    assert answer.plain() == ANSWER


@pytest.mark.parametrize(
    "calls",
    [
        json.dumps([CALL]),
        [{**CALL, "function": {"name": "sky", "arguments": '{"town": "Turin"}'}}],
        [{"id": "c1", "name": "sky", "arguments": {"town": "Turin"}}],
        [{**CALL, "function": {"name": "sky", "arguments": {"town": "Turin", "day": None}}}],
    ],
    ids=["a text", "arguments as text", "without function", "null of a table"],
)
def test_forms_of_a_call_mean_the_same(calls: Any) -> None:
    assert parse(USER, {**ASKS, "tool_calls": calls}, ANSWER).messages[1].tool_calls == (CALL,)


def test_arguments_that_are_no_object_stay_text() -> None:
    (call,) = parse(USER, {**ASKS, "tool_calls": [{"name": "sky", "arguments": "Turin"}]}, ANSWER).messages[1].tool_calls
    assert call["function"]["arguments"] == "Turin"


@pytest.mark.parametrize("tools", [[SCHEMA], json.dumps([SCHEMA])])
def test_the_column_tools_is_read(tools: Any) -> None:
    assert parse(USER, tools=tools).tools == (SCHEMA,)


@pytest.mark.parametrize("tools", [None, "", "[]", []])
def test_a_row_may_have_no_tools(tools: Any) -> None:
    assert parse(USER, tools=tools).tools == ()


@pytest.mark.parametrize(
    ("messages", "columns", "reason"),
    [
        ([USER], {"tools": "hammer"}, '"tools" must be a list of objects'),
        ([USER], {"tools": [{"function": {}}]}, "a tool must be an object with"),
        ([USER, {**ASKS, "tool_calls": [7]}, ANSWER], {}, "message 2: a tool call must be an object with"),
        ([USER, {**ASKS, "tool_calls": []}, ANSWER], {}, 'message 2 has no "content"'),
        ([{**USER, "tool_calls": [CALL]}], {}, '"tool_calls", which would not reach the model; keep only "role", "content"'),
        ([USER, {**ASKS, "audio": "a.wav"}, ANSWER], {}, 'keep only "role", "content", "tool_calls"'),
        ([USER, ASKS], {}, 'it must be "user" or "tool"'),
    ],
)
def test_a_row_that_would_reach_the_model_in_part_is_refused(messages: list[Any], columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        parse(*messages, **columns)


def test_calls_results_and_tools_are_in_the_fingerprint() -> None:
    def data(asks: Any = ASKS, answer: Any = ANSWER, **columns: Any) -> str:
        return DataSet.of([{"messages": [USER, asks, answer], **columns}]).fingerprint

    other = {**ASKS, "tool_calls": [{**CALL, "function": {"name": "sky", "arguments": {"town": "Rome"}}}]}
    unnamed = {"role": "tool", "content": "drizzle"}
    assert len({data(), data(other), data(answer=unnamed), data(tools=[SCHEMA])}) == 4
