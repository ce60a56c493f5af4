"""Whatever a client sends, the gateway answers it or refuses it with 400. It never fails."""

from __future__ import annotations

import asyncio
import copy
import json
from functools import cache
from typing import Any

import httpx2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rlcore_gateway.gateway import Ask, Gateway, GatewaySettings
from rlcore_gateway.ledger import EpisodeLimits
from stub_engine import StubEngine, pieces, real_tokenizer

SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
FUNCTION = {"name": "add", "description": "adds", "parameters": SCHEMA, "strict": False}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
WHOLE: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "play"},
            {"role": "user", "content": [{"type": "text", "text": "guess"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "auto",
        "stop": ["x"],
        "max_tokens": 9,
        "stream_options": {"include_usage": True},
        "logprobs": True,
        "n": 1,
        "temperature": 1.0,
    },
    "/v1/responses": {
        "model": "m",
        "instructions": "play",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "guess"}]},
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
        ],
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": "auto",
        "text": {"format": {"type": "text"}},
        "include": ["reasoning.encrypted_content"],
        "metadata": {"a": "b"},
        "max_output_tokens": 9,
        "previous_response_id": None,
    },
    "/v1/messages": {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "play", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "guess"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "2"}]}]},
        ],
        "tools": [{"name": "add", "description": "adds", "input_schema": SCHEMA}],
        "tool_choice": {"type": "auto"},
        "stop_sequences": ["x"],
        "output_config": {"effort": "low"},
    },
    "/inference/v1/generate": {
        "model": "m",
        "token_ids": [0, 5, 6],
        "sampling_params": {"max_tokens": 9, "stop": "x", "stop_token_ids": [1], "logprobs": 1, "n": 1, "temperature": 1.0},
        "cache_salt": "s",
    },
}
WHOLE["/v1/messages/count_tokens"] = WHOLE["/v1/messages"]

ODD = st.one_of(
    st.sampled_from([None, True, False, 0, -1, 1.5, 2**31, 2**64, 10**400, -0.0, 1e308, "", "x", "\x00", "\ud800", "{", "[1]", "null"]),
    st.sampled_from(
        ["user", "assistant", "tool", "function_call", "tool_use", "reasoning", "message", "auto", "none", "<|im_end|>", "[CALL]"]
    ),
    st.text(max_size=3),
)
KEYS = st.one_of(st.sampled_from(["type", "text", "content", "role", "name", "arguments", "input", "function", "id"]), st.text(max_size=2))
VALUES = st.recursive(ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6)


def places(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a body."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([before] if before else []), *(place for key, one in inner for place in places(one, (*before, key)))]


@cache
def gateway() -> tuple[Gateway, str]:
    engine = StubEngine(lambda ask: pieces('<think>hm</think>so<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'))

    async def generate(ask: Ask) -> Any:
        engine.asked.clear()
        return await engine.generate(ask)

    made = Gateway(real_tokenizer(), generate, GatewaySettings())
    return made, made.open("hostile", EpisodeLimits(tokens=1 << 40, context=2000))


def status_of(path: str, data: bytes) -> int:
    made, key = gateway()

    async def post() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(made.app), base_url="http://test") as client:
            return await client.post(path, content=data, headers={"authorization": f"Bearer {key}"})

    answer = asyncio.run(post())
    if answer.status_code != 200:
        assert answer.headers["x-should-retry"] == "false"
        told = answer.json()["error"]["message"]
        assert told
        assert (answer.json().get("type") == "error") == ("messages" in path)
    elif answer.headers["content-type"].startswith("application/json"):
        answer.json()
    return answer.status_code


@pytest.mark.parametrize("path", WHOLE)
def test_the_bodies_that_are_spoilt_are_good_ones(path: str) -> None:
    assert status_of(path, json.dumps(WHOLE[path]).encode()) == 200


@pytest.mark.parametrize("path", WHOLE)
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_odd_values_at_every_place(path: str, data: st.DataObject) -> None:
    body = copy.deepcopy(WHOLE[path])
    if data.draw(st.booleans()):
        body["stream"] = True
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places(body)))
        inner: Any = body
        for key in place[:-1]:
            inner = inner[key]
        if data.draw(st.booleans()):
            inner[place[-1]] = data.draw(VALUES)
        elif isinstance(inner, dict):
            del inner[place[-1]]
            inner[data.draw(KEYS)] = data.draw(VALUES)
        if not places(body):
            break
    assert status_of(path, json.dumps(body).encode()) in (200, 400)


@pytest.mark.parametrize("path", WHOLE)
@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=20))
@example(b"")
@example(b"null")
@example(b"[]")
@example(b"[" * 100_000)
@example(b'{"messages":' * 10_000)
@example(b'{"messages": [{"role": "user", "content": "\\ud800"}], "input": "\\ud800"}')
@example(b'{"messages": [{"role": "user", "content": "x"}], "input": "x", "token_ids": [3], "temperature": NaN}')
def test_bodies_that_are_none(path: str, data: bytes) -> None:
    assert status_of(path, data) in (200, 400)
