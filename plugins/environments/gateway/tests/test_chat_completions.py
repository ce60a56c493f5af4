"""The gateway, as OpenAI's own client sees it."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import openai
import pytest
from rlcore_gateway.gateway import Ask, GatewaySettings
from rlcore_gateway.ledger import EpisodeLimits
from stub_engine import pieces, real_tokenizer, serving

from rlcore.testing import FakeTokenizer

FAKE = FakeTokenizer()
USER = {"role": "user", "content": "guess"}


def numbers(ask: Ask) -> list[int]:
    """A count of the tokens before, as digits, and the end."""
    return [*FAKE.encode(str(len(ask.context_ids))), 0]


async def play(client: openai.AsyncOpenAI, turns: int = 7, **words: Any) -> list[str]:
    """A guessing game of several turns; the ids of the calls."""
    messages: list[Any] = [{"role": "system", "content": "play"}, USER]
    ids = []
    for turn in range(turns):
        answer = await client.chat.completions.create(model="any", messages=messages, **words)
        ids.append(answer.id)
        messages += [answer.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": f"higher {turn}"}]
    return ids


def test_a_game_of_seven_turns_is_one_segment_of_the_sampled_tokens() -> None:
    async def run() -> None:
        async with serving(FAKE, numbers) as served:
            ids = await play(served.client)
            result = served.gateway.close(served.key).trained()
            (segment,) = result.segments
            assert result.calls == tuple(ids) == tuple(served.engine.answered)
            said = list(served.engine.answered.values())
            np.testing.assert_array_equal(segment.token_ids[segment.policy_mask], np.concatenate([one.token_ids for one in said]))
            np.testing.assert_array_equal(segment.logprobs[segment.policy_mask], np.concatenate([one.logprobs for one in said]))
            assert result.turn_lengths == tuple(len(one.token_ids) for one in said)
            for ask in served.engine.asked:  # each context is the one before it, its answer and the new message
                whole = np.concatenate([segment.context_ids, segment.token_ids])
                np.testing.assert_array_equal(whole[: len(ask.context_ids)], ask.context_ids)
            assert [message.role for message in result.messages] == ["system", *["user", "assistant"] * 7]

    asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_that_would_be_split_otherwise_keeps_its_tokens(stream: bool) -> None:
    async def run() -> None:
        tokenizer = real_tokenizer()
        async with serving(tokenizer, lambda ask: pieces("guess higher than lower")) as served:
            messages: list[Any] = [USER]
            for _ in range(4):
                if stream:
                    parts = await served.client.chat.completions.create(model="m", messages=messages, stream=True)
                    text = "".join([part.choices[0].delta.content or "" async for part in parts if part.choices])
                else:
                    text = (await served.client.chat.completions.create(model="m", messages=messages)).choices[0].message.content or ""
                assert text == "guess higher than lower"
                messages += [{"role": "assistant", "content": text}, USER]
            (segment,) = served.gateway.close(served.key).trained().segments
        sampled = pieces("guess higher than lower")
        assert sampled[:-1] != tokenizer._inner.encode("guess higher than lower", add_special_tokens=False)
        assert segment.token_ids[segment.policy_mask].tolist() == sampled * 4
        text = tokenizer._inner.decode([*segment.context_ids, *segment.token_ids])
        turn = "<|im_start|>user\nguess<|im_end|>\n<|im_start|>assistant\nguess higher than lower<|im_end|>\n"
        assert text == (turn * 4)[:-1]

    asyncio.run(run())


def test_ids_and_log_probabilities_on_request() -> None:
    async def run() -> None:
        async with serving(FAKE, numbers) as served:
            create = served.client.chat.completions.create
            answer = await create(model="m", messages=[USER], logprobs=True, extra_body={"return_token_ids": True})
            said = served.engine.answered[answer.id]
            extra = answer.model_dump()
            assert extra["prompt_token_ids"] == served.engine.asked[0].context_ids.tolist()
            assert extra["choices"][0]["token_ids"] == said.token_ids.tolist()
            content = answer.choices[0].logprobs.content
            assert [one.logprob for one in content] == pytest.approx(said.logprobs.tolist())
            assert answer.usage.completion_tokens == len(said.token_ids)
            assert answer.usage.prompt_tokens == len(extra["prompt_token_ids"])

    asyncio.run(run())


def test_a_stream_pings_and_then_has_everything() -> None:
    async def run() -> None:
        async with serving(FAKE, numbers, settings=GatewaySettings(ping_seconds=0.01)) as served:
            served.engine.gate = asyncio.Event()
            words: Any = {"stream": True, "stream_options": {"include_usage": True}, "logprobs": True}
            stream = await served.client.chat.completions.create(model="m", messages=[USER], extra_body={"return_token_ids": True}, **words)
            assert not served.engine.answered  # the response has begun, because of a ping
            served.engine.gate.set()
            parts = [part async for part in stream]
            assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == "7"
            assert parts[0].choices[0].delta.role == "assistant"
            assert parts[0].model_dump()["choices"][0]["token_ids"] == [FAKE.encode("7")[0], 0]
            assert [part.choices[0].finish_reason for part in parts if part.choices][-1] == "stop"
            assert parts[-1].usage.total_tokens == 9

    asyncio.run(run())


def test_stop_and_max_tokens_count_and_the_stop_string_is_not_in_the_text() -> None:
    async def run() -> None:
        limits = EpisodeLimits(tokens=100, context=200, stop=("end",))
        async with serving(FAKE, lambda ask: FAKE.encode("abc stop"), limits=limits) as served:
            create = served.client.chat.completions.create
            answer = await create(model="m", messages=[USER], stop=["stop"], max_completion_tokens=50)
            assert answer.choices[0].message.content == "abc "
            assert served.engine.asked[0].stop == ("end", "stop")
            assert served.engine.asked[0].max_new_tokens == 50
            cut = await create(model="m", messages=[USER], max_tokens=2)
            assert cut.choices[0].finish_reason == "length"
            assert cut.choices[0].message.content == "ab"
            ledger = served.gateway.close(served.key)
            assert ledger.exhausted == ""  # the client's own limit is no budget

    asyncio.run(run())


def test_sampling_of_the_client_is_ignored_and_counted() -> None:
    async def run() -> None:
        async with serving(FAKE, numbers) as served:
            create = served.client.chat.completions.create
            tool: Any = {"type": "function", "function": {"name": "add", "parameters": {}, "strict": True}}
            await create(model="m", messages=[USER], tools=[tool], temperature=0.2, top_p=0.5, user="me", extra_body={"mystery": 3})
            counts = served.gateway.close(served.key).trained().counts
            assert {name: value for name, value in counts.items() if name.startswith("ignored")} == {
                "ignored_temperature": 1,
                "ignored_top_p": 1,
                "ignored_mystery": 1,
                "ignored_strict": 1,
            }

    asyncio.run(run())


def test_a_client_that_hangs_up_cancels_its_call_and_the_draw_is_used_again() -> None:
    async def run() -> None:
        async with serving(FAKE, numbers, max_retries=0) as served:
            served.engine.gate = asyncio.Event()
            with pytest.raises(openai.APITimeoutError):
                await served.client.with_options(timeout=0.2).chat.completions.create(model="m", messages=[USER])
            while not served.engine.cancelled:
                await asyncio.sleep(0.01)
            served.engine.gate.set()
            await served.client.chat.completions.create(model="m", messages=[USER])
            first, second = served.engine.asked
            assert first.noise == second.noise
            ledger = served.gateway.close(served.key)
            assert [call.id for call in ledger.calls] == [second.call]
            assert ledger.trained().counts["cancelled"] == 1

    asyncio.run(run())


def test_a_retry_of_an_answered_request_trains_once() -> None:
    async def run() -> None:
        async with serving(FAKE, numbers) as served:
            create = served.client.chat.completions.create
            first = await create(model="m", messages=[USER])
            again = await create(model="m", messages=[USER], extra_headers={"x-stainless-retry-count": "1"})
            assert again.id == first.id
            other = await create(model="m", messages=[USER])  # no retry: another sample of the same prompt
            assert other.id != first.id
            assert served.engine.asked[0].noise != served.engine.asked[1].noise
            result = served.gateway.close(served.key).trained()
            assert result.counts["retries"] == 1
            assert result.calls == (first.id, other.id)

    asyncio.run(run())


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_whose_client_hangs_up_as_it_comes_is_not_delivered(stream: bool, again: bool) -> None:
    """The event loop has the answer before it reads that the connection is closed."""

    async def run() -> None:
        async with serving(FAKE, numbers) as served:
            served.engine.gate = asyncio.Event()
            address = urlsplit(served.base_url)
            body = json.dumps({"messages": [USER], "stream": stream}).encode()
            fields = f"Host: h\r\nAuthorization: Bearer {served.key}\r\nContent-Length: {len(body)}"
            head = f"POST /v1/chat/completions HTTP/1.1\r\n{fields}\r\n\r\n"
            client = socket.create_connection((address.hostname, address.port))
            client.sendall(head.encode() + body)
            while not served.engine.asked:
                await asyncio.sleep(0.01)
            served.engine.gate.set()
            client.close()
            ledger = served.gateway.ledger(served.key)
            while not ledger.calls[0].completion or ledger.calls[0].awaited:
                await asyncio.sleep(0.01)
            assert not ledger.calls[0].delivered
            second = await served.client.chat.completions.create(model="m", messages=[USER], max_tokens=openai.omit if again else 50)
            assert served.gateway.close(served.key).trained().calls == (second.id,)
            assert (second.id == ledger.calls[0].id) == again

    asyncio.run(run())


def test_a_retry_while_the_first_request_is_open_waits_for_the_same_answer() -> None:
    async def run() -> None:
        async with serving(FAKE, numbers) as served:
            served.engine.gate = asyncio.Event()
            create = served.client.chat.completions.create
            first = asyncio.ensure_future(create(model="m", messages=[USER]))
            while not served.engine.asked:
                await asyncio.sleep(0.01)
            again = asyncio.ensure_future(create(model="m", messages=[USER], extra_headers={"x-stainless-retry-count": "1"}))
            while not served.gateway.ledger(served.key).counts["retries"]:
                await asyncio.sleep(0.01)
            first.cancel()
            await asyncio.wait([first])
            await asyncio.sleep(0.05)
            served.engine.gate.set()
            assert (await again).id == served.engine.asked[0].call
            assert len(served.engine.asked) == 1

    asyncio.run(run())


def test_the_retry_of_the_sdk_after_its_timeout_trains_once() -> None:
    async def run() -> None:
        async with serving(FAKE, numbers, max_retries=1, timeout=0.3) as served:
            served.engine.gate = asyncio.Event()

            async def open_later() -> None:
                while not served.engine.cancelled:
                    await asyncio.sleep(0.01)
                assert served.engine.gate is not None
                served.engine.gate.set()

            opened = asyncio.ensure_future(open_later())
            answer = await served.client.chat.completions.create(model="m", messages=[USER])
            await opened
            first, second = served.engine.asked
            assert served.engine.cancelled == [first.call]
            assert (answer.id, first.noise) == (second.call, second.noise)
            assert served.gateway.close(served.key).trained().calls == (answer.id,)

    asyncio.run(run())
