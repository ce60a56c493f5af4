"""Tokens in and out, as vLLM has them, through the client that environments of verifiers use."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import httpx2
import numpy as np
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_gateway.gateway import Ask, GatewaySettings
from rlcore_gateway.generate_dialect import messages_in
from rlcore_gateway.ledger import EpisodeLedger, EpisodeLimits
from rlcore_gateway.rendering import ChatRenderer
from stub_engine import LIMITS, Served, pieces, real_tokenizer, serving

from rlcore.api import Completion, FinishReason, Message
from rlcore.api.conversations import following
from rlcore.testing import FakeTokenizer

FAKE = FakeTokenizer()


async def generate(served: Served, ids: list[int], stream: bool = False, headers: Any = None, **sampling: Any) -> dict[str, Any]:
    """Ask as the package renderers does: at the root, with the client of OpenAI."""
    root = served.base_url.removesuffix("/v1")
    params = {"logprobs": 1, "skip_special_tokens": False, **sampling}
    body = {"model": "m", "token_ids": ids, "sampling_params": params, **({"stream": True} if stream else {})}
    options: Any = {"headers": headers} if headers else {}
    raw = await served.client.post(f"{root}/inference/v1/generate", cast_to=httpx2.Response, body=body, options=options)
    if stream:
        assert raw.text.endswith("data: [DONE]\n\n")
        return json.loads(raw.text.split("\n\n")[0].removeprefix("data: "))  # type: ignore[no-any-return]
    return raw.json()  # type: ignore[no-any-return]


def checked(found: dict[str, Any]) -> list[int]:
    """The tokens of an answer, whose entries are as verifiers wants them."""
    (choice,) = found["choices"]
    entries = choice["logprobs"]["content"]
    assert [one["token"] for one in entries] == [f"token_id:{token}" for token in choice["token_ids"]]
    assert [one["token_id"] for one in entries] == choice["token_ids"]
    assert all(math.isfinite(one["logprob"]) for one in entries)
    return list(choice["token_ids"])


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_in_tokens_has_the_tokens_of_chat_completions(stream: bool) -> None:
    tokenizer = real_tokenizer()

    def script(ask: Ask) -> list[int]:
        return pieces("<think>deep</think>guess")

    hint = Message(role="user", content="higher")

    async def run() -> None:
        async with serving(tokenizer, script) as served:
            messages: list[Any] = [{"role": "system", "content": "play"}, {"role": "user", "content": "u"}]
            for _ in range(4):
                answer = (await served.client.chat.completions.create(model="m", messages=messages)).choices[0].message
                messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "higher"}]
            (wanted,) = served.gateway.close(served.key).trained().segments
        async with serving(tokenizer, script) as served:
            ids = tokenizer.render([Message(role="system", content="play"), Message(role="user", content="u")]).tolist()
            names = []
            for _ in range(4):
                found = await generate(served, ids, stream, max_tokens=100, stop_token_ids=sorted(tokenizer.stop_ids))
                names.append(found["request_id"])
                said = checked(found)
                assert said == script(served.engine.asked[-1])
                ids += [*said, *following(tokenizer, (hint,), (hint,), (), said).tolist()]
            result = served.gateway.close(served.key).trained()
            (segment,) = result.segments
            for field in ("context_ids", "token_ids", "logprobs", "policy_mask"):
                np.testing.assert_array_equal(getattr(segment, field), getattr(wanted, field), field)
            assert result.calls == tuple(names)
            assert [(message.role, message.content) for message in result.messages][:4] == [
                ("system", "play"),
                ("user", "u"),
                ("assistant", "<think>deep</think>guess"),
                ("user", "higher"),
            ]
            assert len({ask.noise for ask in served.engine.asked}) == 4

    asyncio.run(run())


def number(ask: Ask) -> list[int]:
    return [*FAKE.encode(str(len(ask.context_ids))), 0]


def test_forks_retries_and_rewritten_tokens_are_as_in_a_chat() -> None:
    async def run() -> None:
        async with serving(FAKE, number) as served:
            first = await generate(served, [3, 7, 4])
            again = await generate(served, [3, 7, 4], headers={"x-stainless-retry-count": "1"})
            assert again["request_id"] == first["request_id"]
            other = await generate(served, [3, 7, 4])
            assert other["request_id"] != first["request_id"]
            assert served.engine.asked[0].noise != served.engine.asked[1].noise
            history = [3, 7, 4, *checked(first)]
            forks = [await generate(served, [*history, 3, word, 4]) for word in (8, 9)]
            cut = await generate(served, [3, 7, 4, 10, 11])  # it does not begin with the answer
            ledger = served.gateway.close(served.key)
            parents = {call.id: call.parent and call.parent.id for call in ledger.calls}
            assert parents[cut["request_id"]] is None
            # two equal answers: each of them continues once
            assert [parents[fork["request_id"]] for fork in forks] == [first["request_id"], other["request_id"]]
            assert ledger.calls[2].tail_ids.tolist() == [3, 8, 4]
            assert ledger.trained().counts["retries"] == 1

    asyncio.run(run())


def test_an_answer_that_was_cut_may_be_continued_without_a_token_between() -> None:
    async def run() -> None:
        async with serving(FAKE, number) as served:
            first = checked(await generate(served, [3, 7, 4], max_tokens=1))
            await generate(served, [3, 7, 4, *first])
            (segment,) = served.gateway.close(served.key).trained().segments
            assert segment.token_ids.tolist() == [*FAKE.encode("3"), *FAKE.encode("4"), 0]
            assert segment.policy_mask.all()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"token_ids": []}, "at least 1 item"),
        ({"token_ids": [-1]}, "greater than or equal to 0"),
        ({"token_ids": [10**12]}, "less than 2147483648"),
        ({"token_ids": [500]}, "token_ids contains 500"),
        ({"token_ids": [True]}, "valid integer"),
        ({"token_ids": [3], "features": {"mm_hashes": {}}}, "leave features out"),
        ({"token_ids": [3], "sampling_params": {"n": 2}}, "leave n out"),
        ({"token_ids": [3], "sampling_params": {"min_tokens": 2}}, "leave min_tokens out"),
        ({"token_ids": [3], "sampling_params": {"logits_processors": ["x"]}}, "leave logits_processors out"),
        ({"token_ids": [3], "output_mode": "text"}, "output_mode"),
    ],
)
def test_what_is_refused(body: dict[str, Any], told: str) -> None:
    async def run() -> None:
        async with serving(FAKE, number) as served:
            root = served.base_url.removesuffix("/v1")
            with pytest.raises(openai.BadRequestError) as caught:
                await served.client.post(f"{root}/inference/v1/generate", cast_to=httpx2.Response, body=body)
            error = caught.value.response.json()["error"]
            assert told in error["message"]
            assert error["code"] == 400
            assert not served.engine.asked

    asyncio.run(run())


def test_the_budget_holds_and_sampling_is_ignored() -> None:
    async def run() -> None:
        async with serving(FAKE, number, limits=EpisodeLimits(tokens=99, context=9, calls=1)) as served:
            assert (await generate(served, [3, 7, 4], temperature=0.1, stop_token_ids=[0, 7]))["choices"][0]["finish_reason"] == "stop"
            with pytest.raises(openai.BadRequestError, match="budget of 1 calls") as caught:
                await generate(served, [3, 7, 4])
            assert caught.value.response.json()["error"]["type"] == "budget_exhausted"
            result = served.gateway.close(served.key).trained()
            assert result.exhausted == "calls"
            assert (result.counts["ignored_temperature"], result.counts["ignored_stop_token_ids"]) == (1, 1)

    asyncio.run(run())


STEPS = st.lists(
    st.tuples(st.integers(-1, 8), st.lists(st.integers(1, 3), max_size=2), st.lists(st.integers(0, 3), max_size=3)), max_size=9
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_a_context_continues_the_longest_history_and_is_kept_exactly(steps: list[Any]) -> None:
    """The tree is searched as a list of all histories would be."""
    ledger = EpisodeLedger("game", ChatRenderer(FAKE), LIMITS)
    said: list[list[int]] = []
    for place, tail, answer in steps:
        ids = [*(said[place % len(said)] if said and place >= 0 else [3]), *tail]
        call = ledger.begin_ids(np.array(ids, np.int32), lambda part: messages_in(part, FAKE))
        assert call.context_ids().tolist() == ids
        known = max((len(one) for one in said if ids[: len(one)] == one), default=0)
        assert len(call.tail_ids) == len(ids) - known
        tokens = np.array(answer, np.int32)
        done = Completion(
            request_id=call.id,
            token_ids=tokens,
            logprobs=-np.ones(len(answer)),
            versions=np.zeros(len(answer), int),
            finish=FinishReason.STOP,
        )
        message = Message(role="assistant", content=FAKE.decode(answer))
        ledger.finish(call, done, message, message)
        call.delivered = True
        said.append([*ids, *answer])
    result = ledger.trained([call.id for call in ledger.calls])
    assert sum(segment.policy_mask.sum() for segment in result.segments) == sum(len(answer) for *_, answer in steps)


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([Message(role="user", content="hi")], [("user", "hi")]),
        ([Message(role="system", content="a\nb"), Message(role="user", content=" hi ")], [("system", "a\nb"), ("user", "hi ")]),
        ([Message(role="user", content="x"), Message(role="assistant", content="y"), Message(role="tool", content="z")], [*"xyz"]),
    ],
)
def test_messages_in_tokens(messages: list[Message], found: list[Any]) -> None:
    read = messages_in(real_tokenizer().render(messages), real_tokenizer())
    assert [(one.role, one.content) if isinstance(found[0], tuple) else one.content for one in read] == found


def test_an_answer_beyond_the_budget_is_noted_at_the_call_that_it_follows() -> None:
    async def run() -> None:
        answering = GatewaySettings(on_budget="answer")
        limits = EpisodeLimits(tokens=99, context=999, calls=1)
        async with serving(FAKE, lambda ask: [5], limits=limits, settings=answering) as served:
            first = await generate(served, [3, 7, 4])
            said = served.engine.answered[first["request_id"]].token_ids.tolist()
            canned = await generate(served, [3, 7, 4, *said, 5])
            await generate(served, [9, 9])
            (call,) = served.gateway.ledger(served.key).calls
            assert call.canned == [canned["request_id"]]

    asyncio.run(run())
