"""The gateway of a frozen player: its episodes are opened and closed over HTTP, and draw as their run says."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import numpy as np
import pytest
from rlcore_gateway import frozen_process
from rlcore_gateway.engine_thread import EngineThread
from rlcore_gateway.frozen_model import FrozenModel
from rlcore_gateway.frozen_process import _FrozenEpisodes
from rlcore_gateway.gateway import Ask, Gateway
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.players import EpisodeDraws, EpisodePlayers, Players, PlayerSetup
from rlcore_gateway.server import GatewayServer

from rlcore.api import Completion, InferenceContext, Request, RunError, Sampling
from rlcore.testing import FakeInference, FakeTokenizer, write_fake_model

FAKE = FakeTokenizer()
LIMITS = EpisodeLimits(tokens=100, context=200, calls=2, stop=("q",))
DRAWS = EpisodeDraws(sampling=Sampling(temperature=0.7, top_p=0.9, top_k=5), noise=(3, 1, 4, 1))


class Seen(FakeInference):
    """Keeps its requests."""

    def __init__(self, folder: Path) -> None:
        super().__init__(InferenceContext(model=str(write_fake_model(folder)), tokenizer=FAKE, prompts_per_forward=4, max_tokens=200))
        self.seen: list[Request] = []

    def submit(self, requests: list[Request]) -> None:  # type: ignore[override]
        self.seen += requests
        super().submit(requests)


async def no_policy(ask: object) -> Completion:
    raise RunError("the policy is not asked")


@asynccontextmanager
async def frozen(folder: Path, **own: float) -> AsyncIterator[tuple[_FrozenEpisodes, Seen, PlayerSetup, Players]]:
    """A frozen player that a fake engine serves, and the players of a gateway that has it."""
    engine, server = Seen(folder), GatewayServer()
    thread = EngineThread(engine, Sampling())
    served = _FrozenEpisodes(FrozenModel(name="black", model=str(folder), **own), "secret", FAKE, thread)  # type: ignore[arg-type]
    thread.start()
    address = (await server.start(served.gateway)).base_url
    setup = PlayerSetup(name="black", base_url=address, model="black", api_key="secret", frozen=True)

    players = Players(Gateway(FAKE, no_policy), [setup, PlayerSetup(name="white")], lambda key: None)
    try:
        yield served, engine, setup, players
    finally:
        await players.stop()
        await server.stop()
        thread.stop()


async def opened(players: Players, draws: EpisodeDraws = DRAWS) -> EpisodePlayers:
    episode = players.new(players._gateway.open("game", LIMITS))
    await players.open(episode, "http://127.0.0.1:1/v1", LIMITS, draws)
    return episode


async def asked(client: httpx2.AsyncClient, setup: PlayerSetup, key: str) -> int:
    question = {"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 3}
    url, headers = f"{setup.base_url}/chat/completions", {"authorization": f"Bearer {key}"}
    return (await client.post(url, json=question, headers=headers)).status_code


def test_an_episode_draws_as_its_run_says_with_streams_that_are_not_the_policys(tmp_path: Path) -> None:
    async def run() -> None:
        async with frozen(tmp_path, temperature=0.0) as (served, engine, setup, players), httpx2.AsyncClient() as client:
            other, reseeded = replace(DRAWS, noise=(3, 1, 4, 2)), replace(DRAWS, noise=(4, 1, 4, 1))
            for draws in (DRAWS, other, DRAWS, reseeded):
                await opened(players, draws)
            for _, key in players._frozen.values():
                for _ in range(3):  # its own budget of calls is not that of the policy
                    assert await asked(client, setup, key) == 200
            first, *_ = engine.seen
            assert (first.sampling.temperature, first.sampling.top_p, first.sampling.top_k) == (0.0, 0.9, 5)
            assert (first.sampling.max_new_tokens, first.sampling.stop) == (3, ("q",))
            noises = [request.noise for request in engine.seen[::3]]
            assert noises[0] == noises[2]
            assert len(set(noises)) == 3
            assert noises[0][0] != DRAWS.noise[0]
            assert served.answered == 12

    asyncio.run(run())


def test_nothing_of_an_episode_is_left_after_its_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with frozen(tmp_path) as (served, _, setup, players), httpx2.AsyncClient() as client:
            episode = await opened(players)
            ((_, key),) = players._frozen.values()
            assert await asked(client, setup, key) == 200
            assert len(served._draws) == 1
            players.close(episode.key)
            await asyncio.wait(list(players._tasks))
            assert not served._draws
            assert await asked(client, setup, key) == 410

    asyncio.run(run())


class Hangs(Seen):
    """Its steps return once they may."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.free = threading.Event()

    def poll(self, timeout: float) -> list[Completion]:
        self.free.wait(60)
        return super().poll(timeout)


def test_a_frozen_engine_shows_signs_of_life_only_while_its_steps_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_process, "_BEAT_SECONDS", 0.02)
    monkeypatch.setattr(frozen_process, "_STEP_SECONDS", 0.3)

    async def run(listening: socket.socket) -> None:
        engine, beats = Hangs(tmp_path), asyncio.Queue[object]()
        thread = EngineThread(engine, Sampling())
        model = FrozenModel(name="black", model=str(tmp_path))
        serving = asyncio.create_task(frozen_process._serve(model, "secret", FAKE, thread, listening, beats.put_nowait))
        for _ in range(50):  # it has nothing to do for longer than a step may take
            await asyncio.wait_for(beats.get(), 60)
        ask = Ask(episode="e", call="c", context_ids=np.ones(1, np.int32), max_new_tokens=2, stop=(), noise=0)
        call = asyncio.create_task(thread.generate(ask))
        while thread.age < 0.6:
            await asyncio.sleep(0.02)
        seen = beats.qsize()
        await asyncio.sleep(0.2)
        assert beats.qsize() == seen
        engine.free.set()
        await call
        while beats.qsize() == seen:
            await asyncio.sleep(0.02)
        serving.cancel()
        thread.stop()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        asyncio.run(run(listening))


def test_only_the_producer_of_an_engine_opens_episodes(tmp_path: Path) -> None:
    async def run() -> None:
        async with frozen(tmp_path) as (served, _, setup, _), httpx2.AsyncClient() as client:
            url = setup.base_url.removesuffix("/v1") + "/rlcore/episodes"
            for headers in ({}, {"authorization": "Bearer other"}):
                assert (await client.post(url, json={}, headers=headers)).status_code == 401
            assert (await client.delete(url, headers={"authorization": "Bearer other"})).status_code == 200
            assert not served._draws

    asyncio.run(run())


def test_an_episode_that_is_cut_while_its_engine_loads_is_ended_there_later(tmp_path: Path) -> None:
    async def run() -> None:
        engine, server = Seen(tmp_path), GatewayServer()
        thread, listening = EngineThread(engine, Sampling()), socket.create_server(("127.0.0.1", 0))
        served = _FrozenEpisodes(FrozenModel(name="black", model=str(tmp_path)), "secret", FAKE, thread)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        setup = PlayerSetup(name="black", base_url=address, model="black", api_key="secret", frozen=True)
        players = Players(Gateway(FAKE, no_policy), [setup], lambda key: None)
        opening = asyncio.create_task(opened(players))
        await asyncio.to_thread(select.select, [listening], [], [], 60)
        opening.cancel()
        await asyncio.wait([opening])
        thread.start()
        await server.start(served.gateway, listening=listening)
        while served._draws or not served._opened:
            await asyncio.sleep(0.02)
        while players._unwanted:
            await asyncio.sleep(0.02)
        await players.stop()
        await server.stop()
        thread.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_the_episodes_of_a_gateway_process_that_was_killed_end(tmp_path: Path) -> None:
    told = {"context": 99, "answer": 9, "stop": [], "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 0}, "noise": DRAWS.noise}

    async def run(listening: socket.socket, process: subprocess.Popen[bytes]) -> None:
        thread, model = EngineThread(Seen(tmp_path), Sampling()), FrozenModel(name="black", model=str(tmp_path))
        serving = asyncio.create_task(frozen_process._serve(model, "secret", FAKE, thread, listening, lambda line: None))
        root, own = f"http://127.0.0.1:{listening.getsockname()[1]}", {"authorization": "Bearer secret"}
        setup = PlayerSetup(name="black", base_url=f"{root}/v1")
        async with httpx2.AsyncClient() as client:

            async def key(pid: int) -> str:
                answer = await client.post(f"{root}/rlcore/episodes", json={**told, "process": pid}, headers=own)
                return str(answer.json()["key"])

            theirs, ours = await key(process.pid), await key(os.getpid())
            assert await asked(client, setup, theirs) == 200
            process.kill()
            process.wait(60)
            while await asked(client, setup, theirs) != 410:
                await asyncio.sleep(0.02)
            assert await asked(client, setup, ours) == 200
        serving.cancel()
        thread.stop()

    with socket.create_server(("127.0.0.1", 0)) as listening, subprocess.Popen(["sleep", "600"]) as process:
        try:
            asyncio.run(asyncio.wait_for(run(listening, process), 60))
        finally:
            process.kill()


def test_an_engine_that_ends_while_an_episode_is_opened_loses_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with frozen(tmp_path) as (_, _, setup, _):
            gone = [replace(setup, base_url="http://127.0.0.1:9/v1"), PlayerSetup(name="white")]
            players = Players(Gateway(FAKE, no_policy), gone, lambda key: None)
            episode = await opened(players)
            assert episode.lost == "black"
            players.close(episode.key)
            await players.stop()

    asyncio.run(run())
