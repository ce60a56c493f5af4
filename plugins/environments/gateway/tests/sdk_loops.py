"""One tool loop, written for each SDK as its documentation writes it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import openai

__all__ = ["LOOPS", "SYSTEM", "TASK", "Loop", "calculator"]

SYSTEM, TASK = "You calculate.", "What is 1 + 2 + 3 + 4 + 5 + 6?"
_NAME, _ABOUT = "calculator", "Add two numbers."
_SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}

Loop = Callable[[str, str, bool], Awaitable[list[str]]]
"""Plays with the base URL of OpenAI, the key, and plain or streamed. Returns the ids of the responses."""


def calculator(arguments: dict[str, Any]) -> str:
    return str(arguments["a"] + arguments["b"])


async def chat(base_url: str, key: str, stream: bool) -> list[str]:
    tools: Any = [{"type": "function", "function": {"name": _NAME, "description": _ABOUT, "parameters": _SCHEMA}}]
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    ids = []
    async with openai.AsyncOpenAI(base_url=base_url, api_key=key) as client:
        while True:
            if stream:
                async with client.chat.completions.stream(model="m", messages=messages, tools=tools) as events:
                    answer: Any = await events.get_final_completion()
            else:
                answer = await client.chat.completions.create(model="m", messages=messages, tools=tools)
            ids.append(answer.id)
            said = answer.choices[0].message
            messages.append(said.model_dump(exclude_none=True, exclude={"parsed"}))
            if answer.choices[0].finish_reason == "stop":
                return ids
            for call in said.tool_calls:
                content = calculator(json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


async def _responses(base_url: str, key: str, stream: bool, stored: bool) -> list[str]:
    tool: Any = {"type": "function", "name": _NAME, "description": _ABOUT, "parameters": _SCHEMA, "strict": False}
    items: list[Any] = [{"role": "user", "content": TASK}]
    ids: list[str] = []
    words: Any = {"model": "m", "tools": [tool], "instructions": SYSTEM}
    words |= {} if stored else {"store": False, "include": ["reasoning.encrypted_content"]}
    async with openai.AsyncOpenAI(base_url=base_url, api_key=key) as client:
        while True:
            given = {**words, "input": items, **({"previous_response_id": ids[-1]} if stored and ids else {})}
            if stream:
                async with client.responses.stream(**given) as events:
                    answer: Any = await events.get_final_response()
            else:
                answer = await client.responses.create(**given)
            ids.append(answer.id)
            items = [] if stored else [*items, *answer.output]
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                assert answer.output_text
                return ids
            for call in calls:
                output = calculator(json.loads(call.arguments))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


async def responses(base_url: str, key: str, stream: bool) -> list[str]:
    return await _responses(base_url, key, stream, stored=False)


async def stored_responses(base_url: str, key: str, stream: bool) -> list[str]:
    return await _responses(base_url, key, stream, stored=True)


async def messages_api(base_url: str, key: str, stream: bool) -> list[str]:
    tool: Any = {"name": _NAME, "description": _ABOUT, "input_schema": _SCHEMA}
    messages: list[Any] = [{"role": "user", "content": TASK}]
    ids = []
    root = base_url.removesuffix("/v1")
    words: Any = {"model": "m", "max_tokens": 10_000, "tools": [tool]}
    words["system"] = [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]
    async with anthropic.AsyncAnthropic(base_url=root, api_key=key) as client:
        while True:
            if stream:
                async with client.messages.stream(messages=messages, **words) as events:
                    answer: Any = await events.get_final_message()
            else:
                answer = await client.messages.create(messages=messages, **words)
            ids.append(answer.id)
            messages.append({"role": "assistant", "content": answer.content})
            if answer.stop_reason == "end_turn":
                return ids
            calls = [block for block in answer.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": calculator(call.input)} for call in calls]
            messages.append({"role": "user", "content": results})


async def tool_runner(base_url: str, key: str, stream: bool) -> list[str]:
    """The SDK's own loop. Its first request is for a thread, and is refused."""

    @anthropic.beta_async_tool(name=_NAME, description=_ABOUT, input_schema=_SCHEMA)
    async def add(a: int, b: int) -> str:
        return calculator({"a": a, "b": b})

    words: Any = {"model": "m", "max_tokens": 10_000, "system": SYSTEM, "messages": [{"role": "user", "content": TASK}], "stream": stream}
    async with anthropic.AsyncAnthropic(base_url=base_url.removesuffix("/v1"), api_key=key) as client:
        runner: Any = client.beta.messages.tool_runner(tools=[add], **words)
        return [(await one.get_final_message()).id if stream else one.id async for one in runner]


LOOPS: dict[str, Loop] = {"chat": chat, "responses": responses, "stored": stored_responses, "messages": messages_api, "runner": tool_runner}
