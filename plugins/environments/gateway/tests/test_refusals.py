"""Refusals and the other parts of each dialect, as the SDKs see them: their own classes of errors, at once, after one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest
from rlcore_gateway.gateway import Ask, GatewaySettings
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.request_fields import NEUTRAL, ignored_fields
from stub_engine import Served, serving

from rlcore.testing import FakeTokenizer

FAKE = FakeTokenizer()
TOOL = {"name": "add", "description": "", "input_schema": {"type": "object"}}
NEEDED: dict[str, Any] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "guess"}]},
    "responses": {"model": "m", "input": "guess"},
    "messages": {"model": "m", "messages": [{"role": "user", "content": "guess"}], "max_tokens": 50},
}


def one(ask: Ask) -> list[int]:
    return [*FAKE.encode("1"), 0]


class Asker:
    """One dialect through its SDK. ``requests`` counts what is sent."""

    def __init__(self, dialect: str, served: Served, key: str | None = None) -> None:
        self.dialect, self.requests = dialect, 0
        kind: Any = anthropic if dialect == "messages" else openai
        http = kind.DefaultAsyncHttpxClient(event_hooks={"request": [self._count]})
        if dialect == "messages":
            root = served.base_url.removesuffix("/v1")
            self.client: Any = anthropic.AsyncAnthropic(base_url=root, api_key=key or served.key, http_client=http)
        else:
            self.client = openai.AsyncOpenAI(base_url=served.base_url, api_key=key or served.key, http_client=http)
        self.errors = kind

    async def _count(self, request: Any) -> None:
        self.requests += 1

    async def ask(self, **words: Any) -> Any:
        """Send a request, and read all of its answer."""
        places = {"chat": lambda: self.client.chat.completions, "responses": lambda: self.client.responses}
        create = places.get(self.dialect, lambda: self.client.messages)().create
        answer = await create(**{**NEEDED[self.dialect], **words})
        return [event async for event in answer] if words.get("stream") else answer

    async def refused(self, kind: str, status: int, **words: Any) -> Any:
        before = self.requests
        with pytest.raises(getattr(self.errors, kind)) as caught:
            await self.ask(**words)
        assert caught.value.status_code == status
        assert caught.value.response.headers["x-should-retry"] == "false"
        assert self.requests == before + 1
        return caught.value


@asynccontextmanager
async def asking(dialect: str, **words: Any) -> AsyncIterator[tuple[Asker, Served]]:
    async with serving(FAKE, one, **words) as served:
        asker = Asker(dialect, served)
        yield asker, served
        await asker.client.close()


def text_of(dialect: str, answer: Any) -> str:
    if dialect == "chat":
        return str(answer.choices[0].message.content)
    return str(answer.output_text if dialect == "responses" else answer.content[0].text)


@pytest.mark.parametrize("dialect", NEEDED)
def test_keys_and_budgets_are_refused_at_once(dialect: str) -> None:
    async def run() -> None:
        limits = EpisodeLimits(tokens=99, context=30, calls=1)
        async with asking(dialect, limits=limits) as (asker, served):
            stranger = Asker(dialect, served, "nonsense")
            await stranger.refused("AuthenticationError", 401)
            await stranger.client.close()
            long = {"input": "x" * 99} if dialect == "responses" else {"messages": [{"role": "user", "content": "x" * 99}]}
            error = await asker.refused("BadRequestError", 400, **long)
            assert ("prompt is too long" in str(error)) == (dialect == "messages")
            assert text_of(dialect, await asker.ask()) == "1"
            error = await asker.refused("BadRequestError", 400)
            assert "budget of 1 calls" in str(error)
            await asker.refused("BadRequestError", 400, stream=True)
            served.gateway.close(served.key)
            await asker.refused("APIStatusError", 410)
            await asker.refused("APIStatusError", 410, stream=True)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("dialect", "words", "named"),
    [
        ("responses", {"tools": [{"type": "web_search"}]}, "tools.0"),
        ("responses", {"tools": [{"type": "custom", "name": "x"}]}, "tools.0"),
        ("responses", {"tool_choice": "required"}, "tool_choice"),
        ("responses", {"tool_choice": {"type": "function", "name": "add"}}, "tool_choice"),
        ("responses", {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}}, "text.format"),
        ("responses", {"background": True}, "background"),
        ("responses", {"conversation": "conv_1"}, "conversation"),
        ("responses", {"prompt": {"id": "p"}}, "prompt"),
        ("responses", {"top_logprobs": 3}, "top_logprobs"),
        ("responses", {"extra_body": {"n": 2}}, "n"),
        ("responses", {"previous_response_id": "resp_1"}, "previous_response_id"),
        ("responses", {"input": []}, "input"),
        ("responses", {"input": [{"type": "item_reference", "id": "x"}]}, "input.0"),
        ("responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.0"),
        ("responses", {"max_output_tokens": 0}, "max_output_tokens"),
        ("messages", {"tool_choice": {"type": "any"}}, "tool_choice"),
        ("messages", {"tool_choice": {"type": "tool", "name": "add"}}, "tool_choice"),
        ("messages", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, "tool_choice"),
        ("messages", {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0"),
        ("messages", {"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format"),
        ("messages", {"extra_body": {"mcp_servers": [{"url": "x"}]}}, "mcp_servers"),
        ("messages", {"container": "c"}, "container"),
        ("messages", {"extra_body": {"logit_bias": {"1": 1}}}, "logit_bias"),
        ("messages", {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "the last message"),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages.0"),
        ("messages", {"max_tokens": 0}, "max_tokens"),
    ],
)
def test_what_the_gateway_cannot_do_is_refused(dialect: str, words: dict[str, Any], named: str) -> None:
    async def run() -> None:
        async with asking(dialect) as (asker, served):
            error = await asker.refused("BadRequestError", 400, **words)
            if dialect == "responses":
                assert error.param == named
            else:
                assert named in str(error)
                assert error.type == "invalid_request_error"
            assert not served.engine.asked
            assert served.gateway.ledger(served.key).counts["refusals"] == 1

    asyncio.run(run())


@pytest.mark.parametrize(("name", "value"), [("background", True), ("conversation", "conv_1"), ("prompt", {"id": 1}), ("mcp_servers", [1])])
def test_a_service_is_not_offered_and_changes_no_distribution(name: str, value: Any) -> None:
    with pytest.raises(Refusal, match=f"{name} = .* is not offered by the gateway; leave {name} out"):
        ignored_fields({name: value}, NEUTRAL)


@pytest.mark.parametrize("dialect", NEEDED)
def test_neutral_values_and_what_has_no_effect(dialect: str) -> None:
    words: dict[str, dict[str, Any]] = {
        "chat": {},
        "responses": {
            "text": {"format": {"type": "text"}, "verbosity": "low"},
            "reasoning": {"effort": "low"},
            "background": False,
            "parallel_tool_calls": False,
        },
        "messages": {"thinking": {"type": "disabled"}, "context_management": {}, "tool_choice": {"type": "auto"}},
    }
    ignored = {
        "chat": set(),
        "responses": {"verbosity", "reasoning", "parallel_tool_calls"},
        "messages": {"thinking", "context_management"},
    }

    async def run() -> None:
        async with asking(dialect) as (asker, served):
            assert (
                text_of(dialect, await asker.ask(extra_body={**words[dialect], "metadata": {}, "service_tier": "auto", "temperature": 0.5}))
                == "1"
            )
            counts = served.gateway.close(served.key).counts
            assert {name for name in counts if name.startswith("ignored")} == {
                f"ignored_{one}" for one in {"temperature", *ignored[dialect]}
            }

    asyncio.run(run())


@pytest.mark.parametrize("dialect", NEEDED)
def test_a_stream_that_has_begun_ends_with_the_sdk_s_own_error(dialect: str) -> None:
    async def run() -> None:
        async with asking(dialect, settings=GatewaySettings(ping_seconds=0.01)) as (asker, served):
            served.engine.gate = asyncio.Event()
            call = asyncio.ensure_future(asker.ask(stream=True))
            while not served.engine.asked:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # some pings
            served.gateway.close(served.key)
            with pytest.raises(asker.errors.APIError, match="has ended"):
                await call
            assert asker.requests == 1

    asyncio.run(run())


@pytest.mark.parametrize("dialect", NEEDED)
def test_an_engine_that_fails_is_500_and_is_not_asked_again(dialect: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        async with asking(dialect) as (asker, served):
            served.engine.script = lambda ask: 1 // 0  # type: ignore[assignment,return-value]
            await asker.refused("InternalServerError", 500)

    asyncio.run(run())
    assert "ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", NEEDED)
def test_a_used_up_budget_may_be_answered_with_a_text_that_does_not_train(dialect: str, stream: bool) -> None:
    async def run() -> None:
        limits = EpisodeLimits(tokens=99, context=999, calls=1)
        async with asking(dialect, limits=limits, settings=GatewaySettings(on_budget="answer")) as (asker, served):
            long = {"input": "x" * 999} if dialect == "responses" else {"messages": [{"role": "user", "content": "x" * 999}]}
            await asker.refused("BadRequestError", 400, **long)  # agents must learn that the chat is too long
            first = await asker.ask()
            for _ in range(2):
                answer = await asker.ask(stream=stream)
                if stream:
                    assert "used up" in str(answer)
                else:
                    assert "used up" in text_of(dialect, answer)
                    assert answer.id != first.id
            if dialect == "responses" and not stream:
                await asker.ask(previous_response_id=answer.id)
                after = await asker.ask(previous_response_id=first.id)
                last = await asker.ask(previous_response_id=after.id)
                assert served.gateway.ledger(served.key).calls[0].canned == [after.id, last.id]
            ledger = served.gateway.close(served.key)
            result = ledger.trained()
            assert result.calls == (first.id,)
            assert result.counts["canned_answers"] == (5 if dialect == "responses" and not stream else 2)
            assert len(served.engine.asked) == 1

    asyncio.run(run())


def test_an_agent_that_goes_on_after_eight_fixed_answers_is_refused() -> None:
    async def run() -> None:
        limits = EpisodeLimits(tokens=99, context=999, calls=1)
        async with asking("chat", limits=limits, settings=GatewaySettings(on_budget="answer")) as (asker, served):
            for _ in range(9):
                await asker.ask()
            await asker.refused("BadRequestError", 400)
            assert served.gateway.close(served.key).counts["canned_answers"] == 8

    asyncio.run(run())


def test_the_key_may_be_in_either_header_and_the_address_may_have_v1() -> None:
    async def run() -> None:
        async with serving(FAKE, one) as served:
            root = served.base_url.removesuffix("/v1")
            for words in (
                {"base_url": root, "auth_token": served.key},
                {"base_url": served.base_url, "api_key": served.key},
                {"base_url": root, "api_key": "EMPTY", "default_headers": {"x-api-key": served.key}},
            ):
                async with anthropic.AsyncAnthropic(**words) as client:
                    assert (await client.messages.create(**NEEDED["messages"])).content[0].text == "1"  # type: ignore[union-attr]
            assert len(served.gateway.ledger(served.key).calls) == 3

    asyncio.run(run())


def test_models_in_both_forms() -> None:
    async def run() -> None:
        async with serving(FAKE, one) as served:
            assert [model.id async for model in served.client.models.list()] == ["policy"]
            assert (await served.client.models.retrieve("any/name")).id == "any/name"
            root = served.base_url.removesuffix("/v1")
            async with anthropic.AsyncAnthropic(base_url=root, api_key=served.key) as client:
                (model,) = [model async for model in client.models.list()]
                assert (model.id, model.display_name, model.type) == ("policy", "policy", "model")
                assert (await client.models.retrieve("claude")).display_name == "claude"
            async with anthropic.AsyncAnthropic(base_url=root, api_key="nonsense") as client:
                with pytest.raises(anthropic.AuthenticationError):
                    await client.models.list()

    asyncio.run(run())


def test_tokens_are_counted_as_they_are_rendered() -> None:
    async def run() -> None:
        async with asking("messages") as (asker, served):
            words = {"messages": NEEDED["messages"]["messages"], "model": "m", "system": "play", "tools": [TOOL]}
            counted = await asker.client.messages.count_tokens(**words)
            assert not served.gateway.ledger(served.key).calls
            answer = await asker.ask(system="play", tools=[TOOL])
            assert counted.input_tokens == answer.usage.input_tokens == len(served.engine.asked[0].context_ids)
            with pytest.raises(anthropic.BadRequestError):
                await asker.client.messages.count_tokens(**{**words, "tool_choice": {"type": "any"}})

    asyncio.run(run())


def test_a_stop_sequence_is_named_and_is_not_in_the_text() -> None:
    async def run() -> None:
        async with asking("messages") as (asker, served):
            served.engine.script = lambda ask: FAKE.encode("abc stop")
            answer = await asker.ask(stop_sequences=["zzz", "stop"])
            assert (answer.stop_reason, answer.stop_sequence, answer.content[0].text) == ("stop_sequence", "stop", "abc ")
            assert served.engine.asked[0].stop == ("zzz", "stop")
            cut = await asker.ask(max_tokens=2)
            assert (cut.stop_reason, cut.stop_sequence, cut.content[0].text) == ("max_tokens", None, "ab")

    asyncio.run(run())


def test_stored_responses_are_fetched_continued_twice_and_forgotten() -> None:
    async def run() -> None:
        async with asking("responses") as (asker, served):
            first = await asker.ask(instructions="play")
            fetched = await asker.client.responses.retrieve(first.id)
            assert (fetched.id, fetched.output_text, fetched.status) == (first.id, "1", "completed")
            forks = [await asker.ask(previous_response_id=first.id, input=word, instructions="play") for word in ("higher", "lower")]
            other = await asker.ask(previous_response_id=first.id, input="higher", instructions="other")
            ledger = served.gateway.ledger(served.key)
            parents = {call.id: call.parent and call.parent.id for call in ledger.calls}
            assert [parents[one.id] for one in forks] == [first.id, first.id]
            assert parents[other.id] is None  # its instructions are in the place of the first ones
            said = [FAKE.decode(served.engine.asked[place].context_ids.tolist()) for place in (1, 3)]
            assert said == ["playguess1higher", "otherguess1higher"]
            await asker.client.responses.delete(first.id)
            for call in (asker.client.responses.retrieve, asker.client.responses.delete):
                with pytest.raises(openai.NotFoundError):
                    await call(first.id)
            await asker.refused("BadRequestError", 400, previous_response_id=first.id)
            unstored = await asker.ask(store=False)
            await asker.refused("BadRequestError", 400, previous_response_id=unstored.id)

    asyncio.run(run())


def test_a_response_that_is_cut_is_incomplete() -> None:
    async def run() -> None:
        async with asking("responses") as (asker, served):
            served.engine.script = lambda ask: FAKE.encode("abc")
            answer = await asker.ask(max_output_tokens=2, include=["message.output_text.logprobs"])
            assert (answer.status, answer.incomplete_details.reason, answer.output_text) == ("incomplete", "max_output_tokens", "ab")
            assert [one.logprob for one in answer.output[0].content[0].logprobs] == [-1 / 64, -2 / 64]
            assert answer.usage.output_tokens == 2
            events = await asker.ask(max_output_tokens=2, stream=True)
            assert events[-1].type == "response.incomplete"
            assert [event.sequence_number for event in events] == list(range(len(events)))

    asyncio.run(run())


def test_an_address_that_there_is_not_is_told_in_the_form_of_the_dialect() -> None:
    async def run() -> None:
        async with asking("messages") as (asker, _):
            with pytest.raises(anthropic.NotFoundError, match="does not offer POST /v1/messages/batches") as caught:
                await asker.client.messages.batches.create(requests=[])
            assert caught.value.type == "not_found_error"

    asyncio.run(run())
