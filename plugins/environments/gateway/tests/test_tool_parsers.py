"""Tool calls in the formats of models, through the parsers and through OpenAI's client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from rlcore_gateway.answer_reading import CompletionReader
from rlcore_gateway.gateway import GatewaySettings
from rlcore_gateway.tool_parsers import PARSERS, guessed_parser
from stub_engine import pieces, real_tokenizer, serving

from rlcore.api import ConfigError

ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
ONE = ("add", {"a": 1})
TWO = ("add", {"a": 2})
USER = {"role": "user", "content": "guess"}


@pytest.mark.parametrize(
    ("parser", "text", "rest", "calls"),
    [
        ("hermes", 'so <tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', "so", [ONE]),
        ("hermes", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [ONE]),
        (
            "qwen",
            '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>\n<tool_call>{"name": "add", "arguments": {"a": 2}}',
            "",
            [ONE, TWO],
        ),
        ("llama", '<|python_tag|>{"name": "add", "parameters": {"a": 1}}; {"name": "add", "parameters": {"a": 2}}', "", [ONE, TWO]),
        ("llama", '{"name": "add", "parameters": {"a": 1}}', "", [ONE]),
        ("mistral", '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {"a": 2}}]', "", [ONE, TWO]),
        ("mistral", 'so [TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]add{"a": 2}', "so", [ONE, TWO]),
        ("json", '```json\n{"name": "add", "arguments": {"a": 1}}\n```', "", [ONE]),
        ("json", '[{"name": "add", "arguments": {"a": 1}}, {"name": "add", "parameters": {"a": 2}}]', "", [ONE, TWO]),
        ("hermes", '<tool_call>{"name": "add"}</tool_call>', "", [("add", {})]),
    ],
)
def test_calls_are_parsed(parser: str, text: str, rest: str, calls: list[Any]) -> None:
    assert PARSERS[parser](text, ["add"]) == (rest, calls)


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {"a": 1}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1e999}}</tool_call>'),
        ("mistral", '[TOOL_CALLS]add[ARGS]{"a": "\\ud800"}'),
        ("hermes", '<tool_call>{"name": "add", "arguments": 5}</tool_call>'),
        ("hermes", '{"name": "add", "arguments": {"a": 1}}'),
        ("llama", '{"name": "other", "parameters": {}}'),
        ("llama", '{"name": "add", "parameters": {}} and more'),
        ("llama", "the answer is 5"),
        ("mistral", '[{"name": "add", "arguments": {"a": 1}}]'),
        ("mistral", '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, 3]'),
        ("mistral", "[TOOL_CALLS]add[ARGS]{"),
        ("json", '{"name": "other", "arguments": {}}'),
        ("json", "[]"),
        ("json", "[" * 100_000),
    ],
)
def test_what_is_no_call_stays_text(parser: str, text: str) -> None:
    assert PARSERS[parser](text, ["add"]) == (text, [])


def test_auto_reads_the_chat_template() -> None:
    assert [guessed_parser(text) for text in ("x<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "plain")] == [
        *("hermes", "mistral", "llama", "json")
    ]
    with pytest.raises(ConfigError, match="tool_parser 'hermess' is unknown; choose auto, hermes, qwen"):
        CompletionReader(real_tokenizer(), "hermess")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_calls_a_tool_and_the_next_request_extends_the_tokens(stream: bool) -> None:
    said = '<think>sum</think>I add.<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'

    async def run() -> None:
        async with serving(real_tokenizer(), lambda ask: pieces(said)) as served:
            messages: list[Any] = [USER]
            for turn in range(3):
                create = served.client.chat.completions.create
                if stream:
                    parts = [part async for part in await create(model="m", messages=messages, tools=[ADD], stream=True)]
                    delta, finish = parts[0].choices[0].delta, parts[-1].choices[0].finish_reason
                else:
                    answer = await create(model="m", messages=messages, tools=[ADD])
                    delta, finish = answer.choices[0].message, answer.choices[0].finish_reason
                (call,) = delta.tool_calls
                assert finish == "tool_calls"
                assert (delta.content, delta.model_extra["reasoning_content"]) == ("I add.", "sum")
                assert (call.function.name, json.loads(call.function.arguments)) == ONE
                # the client writes the arguments in its own way, and drops the text every other time
                function = {"name": "add", "arguments": '{ "a":1 }'}
                echo = {"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": function}]}
                messages += [{**echo, "content": None if turn % 2 else "I add."}, {"role": "tool", "tool_call_id": call.id, "content": "5"}]
            result = served.gateway.close(served.key).trained()
            (segment,) = result.segments
            assert segment.token_ids[segment.policy_mask].tolist() == pieces(said) * 3
            between = "\n<|im_start|>tool\n5<|im_end|>\n<|im_start|>assistant\n"
            assert real_tokenizer()._inner.decode(segment.token_ids) == between.join([f"{said}<|im_end|>"] * 3)
            answers = [message for message in result.messages if message.policy]
            assert [call["function"] for call in answers[0].tool_calls] == [{"name": "add", "arguments": {"a": 1}}]
            assert answers[0].content == "<think>sum</think>\n\nI add."
            assert len({message.tool_calls[0]["id"] for message in answers}) == 3

    asyncio.run(run())


def test_without_tools_or_with_tool_choice_none_a_call_is_text() -> None:
    said = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'

    async def run() -> None:
        async with serving(real_tokenizer(), lambda ask: pieces(said)) as served:
            create = served.client.chat.completions.create
            for words in ({}, {"tools": [ADD], "tool_choice": "none"}):
                message = (await create(model="m", messages=[USER], **words)).choices[0].message
                assert (message.content, message.tool_calls) == (said, None)

    asyncio.run(run())


def test_a_marker_that_is_a_special_token_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """``decode`` leaves special tokens out, so a parser reads ``decode_all``."""
    monkeypatch.setattr("rlcore_gateway.tool_parsers._TOOL_CALLS", "[CALL]")
    inner = real_tokenizer()._inner
    script = [inner.convert_tokens_to_ids("[CALL]"), *pieces('[{"name": "add", "arguments": {"a": 1}}]')]

    async def run() -> None:
        async with serving(real_tokenizer(), lambda ask: script, settings=GatewaySettings(tool_parser="mistral")) as served:
            answer = await served.client.chat.completions.create(model="m", messages=[USER], tools=[ADD])
            assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["add"]

    asyncio.run(run())
