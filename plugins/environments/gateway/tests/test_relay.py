"""Requests of players whose model another server has: in each dialect, whole and streamed, and keys that end with the episode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anthropic
import httpx2
import openai
import pytest
from rlcore_gateway.gateway import Ask
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.players import EpisodeDraws, EpisodePlayers, Players, PlayerSetup
from stub_engine import Served, serving

from rlcore.api import Sampling
from rlcore.testing import FakeTokenizer

FAKE = FakeTokenizer()
USER = {"role": "user", "content": "guess"}
LIMITS = EpisodeLimits(tokens=100, context=1000)
DRAWS = EpisodeDraws(sampling=Sampling(), noise=(0, 0, 0, 0))


def says(text: str) -> Callable[[Ask], list[int]]:
    return lambda ask: [*FAKE.encode(text), max(FAKE.stop_ids)]


@asynccontextmanager
async def two_gateways() -> AsyncIterator[tuple[Served, Served, Players, EpisodePlayers, dict[str, str]]]:
    """The gateway of an episode with the players white, the policy, and black, whom the other gateway serves; and the players' keys."""
    async with serving(FAKE, says("theirs")) as theirs, serving(FAKE, says("ours")) as ours:
        setups = [PlayerSetup(name="white"), PlayerSetup(name="black", base_url=theirs.base_url, model="other", api_key=theirs.key)]
        players = Players(ours.gateway, setups, lambda key: None)
        episode = players.new(ours.key)
        told = (await players.open(episode, ours.base_url, LIMITS, DRAWS))["players"]
        assert isinstance(told, dict)
        yield ours, theirs, players, episode, {name: fields["key"] for name, fields in told.items()}
        await players.stop()


def test_each_key_reaches_its_model_in_every_dialect_whole_and_streamed() -> None:
    async def run() -> None:
        async with two_gateways() as (ours, theirs, _, episode, keys):
            for name, text in (("white", "ours"), ("black", "theirs")):
                chat = ours.connect(keys[name]).chat.completions
                whole = await chat.create(model="m", messages=[USER])  # type: ignore[list-item]
                assert whole.choices[0].message.content == text
                parts = [part async for part in await chat.create(model="m", messages=[{**USER, "content": "a"}], stream=True)]  # type: ignore[list-item, call-overload, union-attr]
                assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == text
                said = await ours.connect(keys[name]).responses.create(model="m", input="b")
                assert said.output_text == text
                async with anthropic.AsyncAnthropic(base_url=ours.base_url.removesuffix("/v1"), api_key=keys[name]) as client:
                    message = await client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "c"}])
                    assert message.content[0].text == text  # type: ignore[union-attr]
            assert len(ours.gateway.ledger(ours.key).calls) == len(theirs.gateway.ledger(theirs.key).calls) == 4
            assert not episode.others["black"].unanswered

    asyncio.run(run())


def test_the_end_of_the_episode_cancels_what_is_open_at_the_other_server_and_ends_the_key() -> None:
    async def run() -> None:
        async with two_gateways() as (ours, theirs, players, episode, keys):
            theirs.engine.gate = asyncio.Event()
            client = ours.connect(keys["black"], max_retries=0)
            open_call = asyncio.ensure_future(client.chat.completions.create(model="m", messages=[USER]))  # type: ignore[list-item]
            while not theirs.engine.asked:
                await asyncio.sleep(0.01)
            ours.gateway.close(ours.key)
            players.close(ours.key)
            for call in (open_call, client.chat.completions.create(model="m", messages=[USER])):  # type: ignore[list-item]
                with pytest.raises(openai.APIStatusError) as ended:
                    await call
                assert (ended.value.status_code, ended.value.code) == (410, "episode_closed")
            while not theirs.engine.cancelled:
                await asyncio.sleep(0.01)
            assert not episode.others["black"].unanswered, "the server is not at fault"

    asyncio.run(run())


def test_a_client_that_hangs_up_cancels_its_call_at_the_other_server() -> None:
    async def run() -> None:
        async with two_gateways() as (ours, theirs, _, episode, keys):
            theirs.engine.gate = asyncio.Event()
            async with httpx2.AsyncClient(headers={"authorization": f"Bearer {keys['black']}"}) as client:
                with pytest.raises(httpx2.ReadTimeout):
                    await client.post(f"{ours.base_url}/chat/completions", json={"model": "m", "messages": [USER]}, timeout=1.0)
            while not theirs.engine.cancelled:
                await asyncio.sleep(0.01)
            assert not episode.others["black"].unanswered

    asyncio.run(run())


def test_the_key_of_a_player_reaches_models_and_answers_and_nothing_else() -> None:
    async def run() -> None:
        async with two_gateways() as (ours, _, _, _, keys), httpx2.AsyncClient() as client:
            client.headers["authorization"] = f"Bearer {keys['black']}"
            root = ours.base_url.removesuffix("/v1")
            for method, path in (("GET", "/v1/organization/admin_api_keys"), ("DELETE", "/v1/files/a"), ("GET", "/v1/responses/a")):
                refused = await client.request(method, root + path)
                assert (refused.status_code, f"does not reach {method} {path}" in refused.text) == (404, True)
            assert (await client.get(f"{root}/v1/models")).status_code == 200

    asyncio.run(run())


def test_no_cookie_of_one_episode_is_sent_with_the_requests_of_another() -> None:
    async def run() -> None:
        async with two_gateways() as (ours, _, players, _, _):
            client = players._client(True)
            request = client.build_request("GET", f"{ours.base_url}/models")
            client.cookies.extract_cookies(httpx2.Response(200, headers={"set-cookie": "session=one; Path=/"}, request=request))
            assert "cookie" not in client.build_request("GET", f"{ours.base_url}/models").headers

    asyncio.run(run())
