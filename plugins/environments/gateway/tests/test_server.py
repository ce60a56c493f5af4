"""The server: its addresses, many connections, and its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from rlcore_gateway.gateway import Ask, Gateway
from rlcore_gateway.server import GatewayServer
from stub_engine import LIMITS, StubEngine, serving

from rlcore.api import RunError
from rlcore.testing import FakeTokenizer

FAKE = FakeTokenizer()
USER: Any = {"role": "user", "content": "guess"}


def one(ask: Ask) -> list[int]:
    return [FAKE.encode("1")[0], 0]


def test_a_unix_socket_serves_the_same_episodes_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"

    async def run() -> None:
        server = GatewayServer()
        gateway = Gateway(FAKE, StubEngine(one).generate)
        addresses = await server.start(gateway, unix_socket=path)
        key = gateway.open("game", LIMITS)
        assert path.stat().st_mode & 0o777 == 0o600
        async with (
            httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=str(path))) as through,
            openai.AsyncOpenAI(base_url="http://gateway/v1", api_key=key, http_client=through) as client,
            openai.AsyncOpenAI(base_url=addresses.base_url, api_key=key) as other,
        ):
            for each in (client, other):
                await each.chat.completions.create(model="m", messages=[USER])
        assert len(gateway.close(key).calls) == 2
        await server.stop()

    asyncio.run(run())
    assert not path.exists()


def test_an_address_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        gateway, first, second = Gateway(FAKE, StubEngine(one).generate), GatewayServer(), GatewayServer()
        port = (await first.start(gateway)).port
        with pytest.raises(RunError, match=f"cannot open 127.0.0.1:{port}: .*choose another port"):
            await second.start(gateway, port=port)
        with pytest.raises(RunError, match="longer than 107 bytes"):
            await second.start(gateway, unix_socket=tmp_path / ("long" * 40))
        with pytest.raises(RunError, match="choose a new path"):
            await second.start(gateway, unix_socket=tmp_path / "nowhere" / "gateway.sock")
        await second.stop()
        await first.stop()

    asyncio.run(run())


def test_two_hundred_open_calls_wait_side_by_side() -> None:
    async def run() -> None:
        async with serving(FAKE, one, timeout=60) as served:
            served.engine.gate = asyncio.Event()
            create = served.client.chat.completions.create
            calls = [asyncio.ensure_future(create(model="m", messages=[USER])) for _ in range(200)]
            while len(served.engine.asked) < 200:
                await asyncio.sleep(0.01)
            served.engine.gate.set()
            answers = await asyncio.gather(*calls)
            assert len({answer.id for answer in answers}) == 200
            assert len({ask.noise for ask in served.engine.asked}) == 200

    asyncio.run(run())


def test_the_server_stops_although_connections_are_kept_alive() -> None:
    async def run() -> None:
        server, gateway = GatewayServer(), Gateway(FAKE, StubEngine(one).generate)
        addresses = await server.start(gateway)
        key = gateway.open("game", LIMITS)
        async with openai.AsyncOpenAI(base_url=addresses.base_url, api_key=key, max_retries=0) as client:
            await client.models.list()
            await server.stop()
            with pytest.raises(openai.APIConnectionError):
                await client.models.list()

    asyncio.run(run())
