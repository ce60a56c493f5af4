"""Keys of episodes, budgets, and errors in the form of the API."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import openai
import pytest
from rlcore_gateway.gateway import Ask
from rlcore_gateway.ledger import EpisodeLimits
from stub_engine import Served, serving

from rlcore.testing import FakeTokenizer

FAKE = FakeTokenizer()
USER = {"role": "user", "content": "guess"}


def one(ask: Ask) -> list[int]:
    return [FAKE.encode("1")[0], 0]


async def refused(served: Served, kind: type[openai.APIStatusError] = openai.BadRequestError, **words: Any) -> openai.APIStatusError:
    """The error of a request. The client must not have repeated it."""
    before = len(served.engine.asked)
    with pytest.raises(kind) as caught:
        await served.client.chat.completions.create(**{"model": "m", "messages": [USER], **words})
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(served.engine.asked) == before
    return caught.value


def test_a_wrong_key_is_401_and_a_closed_one_410() -> None:
    async def run() -> None:
        async with serving(FAKE, one) as served:
            other = served.gateway.open("other", EpisodeLimits(tokens=9, context=99))
            for key in ("nonsense", other + "x", f"x{other}"):
                with pytest.raises(openai.AuthenticationError) as caught:
                    await served.connect(key).chat.completions.create(model="m", messages=[USER])
                assert caught.value.code == "invalid_api_key"
            with pytest.raises(openai.AuthenticationError):
                await served.connect("nonsense").models.list()
            async with httpx2.AsyncClient() as plain:
                assert (await plain.post(f"{served.base_url}/chat/completions", json={})).status_code == 401
            await served.connect(other).chat.completions.create(model="m", messages=[USER])
            assert not served.gateway.ledger(served.key).calls  # the other's key reached the other's ledger alone
            assert len(served.gateway.close(other).calls) == 1
            for call in (
                served.connect(other).models.list,
                lambda: served.connect(other).chat.completions.create(model="m", messages=[USER]),
            ):
                with pytest.raises(openai.APIStatusError) as ended:
                    await call()
                assert ended.value.status_code == 410
                assert ended.value.response.headers["x-should-retry"] == "false"

    asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_is_open_when_the_episode_ends_is_cancelled_and_answered_410(stream: bool) -> None:
    async def run() -> None:
        async with serving(FAKE, one) as served:
            served.engine.gate = asyncio.Event()
            call = asyncio.ensure_future(served.client.chat.completions.create(model="m", messages=[USER], stream=stream))
            while not served.engine.asked:
                await asyncio.sleep(0.01)
            ledger = served.gateway.close(served.key)
            with pytest.raises(openai.APIStatusError) as caught:
                await call
            assert caught.value.status_code == 410
            assert served.engine.cancelled == [served.engine.asked[0].call]
            assert ledger.calls == []
            assert ledger.trained().segments == ()

    asyncio.run(run())


def test_a_used_up_budget_of_calls_is_an_error_that_says_so() -> None:
    async def run() -> None:
        async with serving(FAKE, one, limits=EpisodeLimits(tokens=99, context=99, calls=1)) as served:
            await served.client.chat.completions.create(model="m", messages=[USER])
            error = await refused(served)
            assert error.code == "budget_exhausted"
            assert "budget of 1 calls" in str(error)
            result = served.gateway.close(served.key).trained()
            assert result.exhausted == "calls"
            assert result.counts["refusals"] == 1
            assert len(result.calls) == 1

    asyncio.run(run())


def test_the_budget_of_tokens_cuts_an_answer_and_then_refuses() -> None:
    async def run() -> None:
        async with serving(FAKE, one, limits=EpisodeLimits(tokens=3, context=99)) as served:
            create = served.client.chat.completions.create
            assert (await create(model="m", messages=[USER])).choices[0].finish_reason == "stop"
            assert (await create(model="m", messages=[USER])).choices[0].finish_reason == "length"
            assert served.gateway.ledger(served.key).exhausted == "tokens"
            assert "budget of 3 sampled tokens" in str(await refused(served))

    asyncio.run(run())


def test_an_answer_that_the_client_itself_bounds_does_not_use_up_the_budget() -> None:
    async def run() -> None:
        async with serving(FAKE, one, limits=EpisodeLimits(tokens=1, context=99)) as served:
            answer = await served.client.chat.completions.create(model="m", messages=[USER], max_tokens=1)
            assert answer.choices[0].finish_reason == "length"
            assert served.gateway.ledger(served.key).exhausted == ""

    asyncio.run(run())


def test_a_context_beyond_the_model_has_the_error_of_the_api() -> None:
    async def run() -> None:
        async with serving(FAKE, one, limits=EpisodeLimits(tokens=99, context=8)) as served:
            error = await refused(served, messages=[{"role": "user", "content": "far too long"}])
            assert error.code == "context_length_exceeded"
            assert error.status_code == 400
            assert served.gateway.ledger(served.key).exhausted == "context"
            await served.client.chat.completions.create(model="m", messages=[USER])  # 7 tokens and room for one
            assert served.engine.asked[0].max_new_tokens == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"n": 2}, "n"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "add"}}}, "tool_choice"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"logprobs": True, "top_logprobs": 2}, "top_logprobs"),
        ({"extra_body": {"guided_json": {}}}, "guided_json"),
        ({"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}, "chat_template_kwargs"),
        ({"extra_body": {"repetition_penalty": 1.1}}, "repetition_penalty"),
    ],
)
def test_what_would_change_the_distribution_is_refused(words: dict[str, Any], named: str) -> None:
    async def run() -> None:
        async with serving(FAKE, one) as served:
            error = await refused(served, **words)
            assert error.param == named
            assert f"leave {named} out" in str(error)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"messages": []}, "messages: List should have at least 1 item"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "role 'wizard' is unknown"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "the policy reads text only"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools.0 is not a function"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, "a tool call is not one of a function"),
    ],
)
def test_a_request_that_is_none_is_refused(words: dict[str, Any], told: str) -> None:
    async def run() -> None:
        async with serving(FAKE, one) as served:
            assert told in str(await refused(served, **words))

    asyncio.run(run())


def test_neutral_values_are_accepted() -> None:
    async def run() -> None:
        async with serving(FAKE, one) as served:
            create = served.client.chat.completions.create
            words: Any = {"n": 1, "response_format": {"type": "text"}, "frequency_penalty": 0.0, "logit_bias": {}, "tool_choice": "auto"}
            assert (await create(model="m", messages=[USER], **words)).choices[0].message.content == "1"
            assert served.gateway.ledger(served.key).counts["refusals"] == 0

    asyncio.run(run())


def test_an_engine_that_fails_is_500_and_the_call_is_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        def broken(ask: Ask) -> list[int]:
            raise RuntimeError("out of memory")

        async with serving(FAKE, broken) as served:
            with pytest.raises(openai.InternalServerError, match="out of memory") as caught:
                await served.client.chat.completions.create(model="m", messages=[USER])
            assert caught.value.response.headers["x-should-retry"] == "false"
            assert len(served.engine.asked) == 1
            assert served.gateway.close(served.key).calls == []

    asyncio.run(run())
    assert "out of memory" in capsys.readouterr().out


def test_another_address_says_what_there_is() -> None:
    async def run() -> None:
        async with serving(FAKE, one) as served, httpx2.AsyncClient() as plain:
            found = await plain.post(f"{served.base_url}/completions", json={})
            assert found.status_code == 404
            assert "/v1/chat/completions" in found.json()["error"]["message"]
            models = await served.client.models.list()
            assert [model.id for model in models.data] == ["policy"]

    asyncio.run(run())


def test_the_keys_of_several_players_share_one_episode_and_end_together() -> None:
    async def run() -> None:
        async with serving(FAKE, one) as served:
            black = served.gateway.add_player(served.key, "black")
            white = served.gateway.add_player(black, "white")
            assert len({served.key, black, white}) == 3
            for key in (served.key, black, white):
                await served.connect(key).chat.completions.create(model="m", messages=[USER])
                assert served.gateway.ledger(key) is served.gateway.ledger(served.key)
            assert len(served.gateway.close(served.key).calls) == 3
            for key in (served.key, black, white):
                with pytest.raises(openai.APIStatusError) as ended:
                    await served.connect(key).chat.completions.create(model="m", messages=[USER])
                assert ended.value.status_code == 410
            with pytest.raises(KeyError):
                served.gateway.add_player(served.key, "red")

    asyncio.run(run())


def test_a_player_does_not_see_the_stored_responses_of_another() -> None:
    async def run() -> None:
        async with serving(FAKE, one) as served:
            white, black = (served.connect(served.gateway.add_player(served.key, name)).responses for name in ("white", "black"))
            own = await white.create(model="m", input="secret")
            for call in (
                lambda: black.retrieve(own.id),
                lambda: black.delete(own.id),
                lambda: black.create(model="m", input="what did white say?", previous_response_id=own.id),
                lambda: served.client.responses.retrieve(own.id),
            ):
                with pytest.raises(openai.APIStatusError) as caught:
                    await call()
                assert caught.value.code == "previous_response_not_found"
            assert (await white.retrieve(own.id)).id == own.id
            await white.create(model="m", input="go on", previous_response_id=own.id)

    asyncio.run(run())
