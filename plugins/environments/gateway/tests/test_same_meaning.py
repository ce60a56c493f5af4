"""Requests that mean the same are the same in every dialect, so that one ledger results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import anthropic
import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsBase as MessagesParams
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase as ResponsesParams
from rlcore_gateway import chat_request, messages_request, responses_request
from rlcore_gateway.api_dialect import PolicyRequest
from rlcore_gateway.chat_messages import key_of, tools_key
from rlcore_gateway.chat_request import parse_chat
from rlcore_gateway.gateway import Ask
from rlcore_gateway.messages_request import parse_messages
from rlcore_gateway.request_fields import _HARMLESS, NEUTRAL
from rlcore_gateway.responses_request import parse_responses
from stub_engine import pieces, real_tokenizer, serving

TEXT = st.text("ab \n", max_size=4)
CALLS = st.lists(
    st.tuples(st.sampled_from(["add", "sub"]), st.dictionaries(st.sampled_from("xy"), st.integers() | TEXT, max_size=2)), max_size=2
)
TURNS = st.lists(st.tuples(TEXT, TEXT, CALLS), max_size=4)
"""(what the user says; the text of the answer; its calls, each of which is answered with a text)"""
CHATS = st.fixed_dictionaries(
    {
        "system": TEXT,
        "turns": TURNS,
        "asked": TEXT,
        "tools": st.lists(st.sampled_from(["add", "sub"]), unique=True),
        "choice": st.sampled_from([None, "auto", "none"]),
        "limit": st.integers(1, 99),
    }
)


def parts(draw: Any, kind: str, text: str) -> Any:
    """A text as it is, or in parts."""
    if draw(st.booleans()):
        return text
    place = draw(st.integers(0, len(text)))
    return [{"type": kind, "text": part, "cache_control": {"type": "ephemeral"}} for part in (text[:place], text[place:])]


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"to {name}", "parameters": {"type": "object", "properties": {"x": {}}}}


def chat(draw: Any, said: dict[str, Any]) -> dict[str, Any]:
    messages: list[Any] = [{"role": draw(st.sampled_from(["system", "developer"])), "content": said["system"]}] if said["system"] else []
    for number, (asked, answer, calls) in enumerate(said["turns"]):
        messages.append({"role": "user", "content": parts(draw, "text", asked)})
        made = [
            {"id": f"{number}.{place}", "type": "function", "function": {"name": name, "arguments": json.dumps(values)}}
            for place, (name, values) in enumerate(calls)
        ]
        messages.append({"role": "assistant", "content": answer, "reasoning_content": "hm", **({"tool_calls": made} if made else {})})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in made]
    body: dict[str, Any] = {"messages": [*messages, {"role": "user", "content": said["asked"]}], "max_completion_tokens": said["limit"]}
    body["tools"] = [{"type": "function", "function": {**tool(name), "strict": True}} for name in said["tools"]]
    return {**body, "tool_choice": said["choice"]}


def responses(draw: Any, said: dict[str, Any]) -> dict[str, Any]:
    items: list[Any] = []
    for number, (asked, answer, calls) in enumerate(said["turns"]):
        items.append({"role": "user", "content": parts(draw, "input_text", asked)})
        if draw(st.booleans()):
            items.append({"type": "reasoning", "id": "r", "summary": [], **draw(st.sampled_from([{}, {"encrypted_content": "x"}]))})
        if answer or not calls or draw(st.booleans()):
            items.append({"type": "message", "role": "assistant", "content": parts(draw, "output_text", answer)})
        made = [
            {"type": "function_call", "call_id": f"{number}.{place}", "name": name, "arguments": json.dumps(values, indent=1)}
            for place, (name, values) in enumerate(calls)
        ]
        outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": parts(draw, "input_text", "ok")} for call in made]
        items += [*made, *outputs]
    body: dict[str, Any] = {"input": [*items, {"role": "user", "content": said["asked"]}], "max_output_tokens": said["limit"]}
    if said["system"] and draw(st.booleans()):
        body["instructions"] = said["system"]
    elif said["system"]:
        body["input"].insert(0, {"type": "message", "role": "developer", "content": said["system"]})
    body["tools"] = [{"type": "function", **tool(name), "strict": False} for name in said["tools"]]
    return {**body, "tool_choice": said["choice"]}


def messages(draw: Any, said: dict[str, Any]) -> dict[str, Any]:
    found: list[Any] = []
    results: list[Any] = []
    for number, (asked, answer, calls) in enumerate([*said["turns"], (said["asked"], None, [])]):
        text = parts(draw, "text", asked)
        found.append(
            {
                "role": "user",
                "content": [*results, *([{"type": "text", "text": text}] if isinstance(text, str) else text)] if results else text,
            }
        )
        if answer is None:
            break
        uses = [
            {"type": "tool_use", "id": f"{number}.{place}", "name": name, "input": values} for place, (name, values) in enumerate(calls)
        ]
        texts = [{"type": "text", "text": answer}] if answer or draw(st.booleans()) else []
        thinking = [{"type": "thinking", "thinking": "hm", "signature": "s"}] if draw(st.booleans()) else []
        found.append({"role": "assistant", "content": [*thinking, *texts, *uses] if uses or draw(st.booleans()) else answer})
        results = [{"type": "tool_result", "tool_use_id": use["id"], "content": parts(draw, "text", "ok")} for use in uses]
        if results and draw(st.booleans()):  # some clients send the results alone
            found.append({"role": "user", "content": results})
            results = []
    tools = [{"name": name, "description": f"to {name}", "input_schema": tool(name)["parameters"]} for name in said["tools"]]
    body: dict[str, Any] = {"messages": found, "max_tokens": said["limit"], "tools": tools}
    if said["system"]:
        body["system"] = parts(draw, "text", said["system"])
    return {**body, **({"tool_choice": {"type": said["choice"]}} if said["choice"] else {})}


DIALECTS: list[tuple[Callable[..., dict[str, Any]], Callable[[bytes], PolicyRequest]]] = [
    (chat, parse_chat),
    (responses, parse_responses),
    (messages, parse_messages),
]


@settings(max_examples=300, deadline=None)
@given(CHATS, st.data())
def test_a_chat_is_the_same_in_every_dialect(said: dict[str, Any], data: st.DataObject) -> None:
    first, *others = [parse(json.dumps(body(data.draw, said)).encode()) for body, parse in DIALECTS]
    for other in others:
        assert [message.content for message in other.messages] == [message.content for message in first.messages]
        assert [key_of(message) for message in other.messages] == [key_of(message) for message in first.messages]
        assert json.dumps(other.tools) == json.dumps(first.tools)  # the template renders them, so their order counts
        assert tools_key(other.tools) == tools_key(first.tools)
        assert (other.tool_calls, other.max_tokens, other.stop) == (first.tool_calls, first.max_tokens, first.stop)


@pytest.mark.parametrize(
    ("params", "body", "ignored"),
    [
        (ChatParams, chat_request._ChatBody, {"reasoning_effort", "seed", "temperature", "top_p", "verbosity"}),
        (ResponsesParams, responses_request._ResponsesBody, {"context_management", "reasoning", "temperature", "top_p", "truncation"}),
        (MessagesParams, messages_request._MessagesBody, {"context_management", "thinking"}),
    ],
)
def test_for_each_parameter_of_the_sdk_it_is_decided_whether_it_counts(params: Any, body: Any, ignored: set[str]) -> None:
    """A new one might carry the chat itself, as \"thread\" does, which must not be ignored."""
    assert set(params.__annotations__) - set(body.model_fields) - set(NEUTRAL) - _HARMLESS - {"response_format", "tool_choice"} == ignored


def test_a_chat_may_change_its_dialect_between_turns() -> None:
    def script(ask: Ask) -> list[int]:
        return pieces("<think>deep</think>guess")

    async def run() -> None:
        async with serving(real_tokenizer(), script) as served:
            asked: Any = {"role": "user", "content": "u"}
            first = (await served.client.chat.completions.create(model="m", messages=[asked])).choices[0].message.content
            items: Any = [asked, {"role": "assistant", "content": first}, asked]
            second = await served.client.responses.create(model="m", input=items)
            chat: Any = [*items, {"role": "assistant", "content": second.output_text}, asked]
            async with anthropic.AsyncAnthropic(base_url=served.base_url.removesuffix("/v1"), api_key=served.key) as client:
                third = await client.messages.create(model="m", max_tokens=50, messages=chat)
                again = await client.messages.create(
                    model="m", max_tokens=50, messages=chat, extra_headers={"x-stainless-retry-count": "1"}
                )
            assert again.id == third.id
            result = served.gateway.close(served.key).trained()
            (segment,) = result.segments
            assert segment.token_ids[segment.policy_mask].tolist() == script(served.engine.asked[0]) * 3
            assert (result.counts["roots"], result.counts["forks"], result.counts["retries"]) == (1, 0, 1)

    asyncio.run(run())
