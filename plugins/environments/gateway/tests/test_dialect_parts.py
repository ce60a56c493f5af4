"""Parts of dialects that no loop of an SDK reaches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx2
import pytest
from rlcore_gateway.api_dialect import PolicyAnswer, PolicyRequest
from rlcore_gateway.gateway import Ask
from rlcore_gateway.messages_request import parse_messages
from rlcore_gateway.stored import StoredResponses
from stub_engine import pieces, real_tokenizer, serving

from rlcore.api import Message


def test_texts_around_the_results_of_tools_stay_in_their_order() -> None:
    blocks: list[Any] = [{"type": "text", "text": name} for name in "abc"]
    result = {"type": "tool_result", "tool_use_id": "t", "content": "r"}
    body = {"messages": [{"role": "user", "content": [blocks[0], result, result, blocks[1], blocks[2]]}, {"role": "user", "content": []}]}
    found = [(message.role, message.content) for message in parse_messages(json.dumps(body).encode()).messages]
    assert found == [("user", "a"), ("tool", "r"), ("tool", "r"), ("user", "bc"), ("user", "")]


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_has_a_signature_so_that_clients_send_it_back(stream: bool) -> None:
    async def run() -> None:
        async with serving(real_tokenizer(), lambda ask: pieces("<think>deep</think>guess")) as served:
            async with anthropic.AsyncAnthropic(base_url=served.base_url.removesuffix("/v1"), api_key=served.key) as client:
                words: Any = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "u"}]}
                if stream:
                    async with client.messages.stream(**words) as events:
                        answer: Any = await events.get_final_message()
                else:
                    answer = await client.messages.create(**words)
            thinking, text = answer.content
            assert (thinking.type, thinking.thinking, text.text) == ("thinking", "deep", "guess")
            assert thinking.signature

    asyncio.run(run())


def test_an_answer_beyond_the_budget_can_be_continued_by_its_id() -> None:
    stored = StoredResponses({})
    user, said, more = Message(role="user", content="u"), Message(role="assistant", content="no"), Message(role="user", content="more")
    system = Message(role="system", content="play")
    stored.add(PolicyAnswer(id="c", sent=said, call=None), PolicyRequest(messages=(system, user), instructions=True, store=True))
    assert stored.continued(PolicyRequest(messages=(more,), previous="c")).messages == (user, said, more)
    assert stored.continued(PolicyRequest(messages=(system, more), previous="c", instructions=True)).messages == (system, user, said, more)


def test_answers_beyond_the_budget_that_are_continued_by_their_ids_keep_each_message_once() -> None:
    stored, said = StoredResponses({}), Message(role="assistant", content="no")
    expected: list[Message] = []
    for place in range(300):
        more = Message(role="user", content=f"{place}")
        asked = PolicyRequest(messages=(more,), previous=str(place - 1) if place else "", store=True)
        assert list(stored.continued(asked).messages) == [*expected, more]
        stored.add(PolicyAnswer(id=str(place), sent=said, call=None), asked)
        expected += [more, said]
    assert sum(len(one.own) for one in stored._stored.values()) == 300
    stored.delete("7")
    last = PolicyRequest(messages=(said,), previous="299")
    assert list(stored.continued(last).messages) == [*expected, said]


def test_a_body_that_arrives_after_the_end_of_its_episode_is_answered_410() -> None:
    def never(ask: Ask) -> list[int]:
        raise AssertionError("no call may begin")

    async def run() -> None:
        async with serving(real_tokenizer(), never) as served, httpx2.AsyncClient() as client:

            async def slow() -> AsyncIterator[bytes]:
                yield b'{"messages": [{"role": "user",'
                await asyncio.sleep(0.2)
                served.gateway.close(served.key)
                yield b'"content": "u"}]}'

            headers = {"authorization": f"Bearer {served.key}", "content-type": "application/json"}
            answer = await client.post(f"{served.base_url}/chat/completions", content=slow(), headers=headers)
            assert answer.status_code == 410

    asyncio.run(run())
