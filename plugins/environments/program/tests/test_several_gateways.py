"""A producer with two gateway processes, one of which dies or stops while agents with OpenAI's client retry their calls."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from episode_player import EpisodePlayer, descendants
from openai import APIError, OpenAI
from rlcore_gateway.gateway import Ask, Gateway
from rlcore_gateway.server import GatewayServer

from rlcore.api import Completion, Rollout, Score
from rlcore.testing import FakeTokenizer

KILL, STOP = signal.SIGKILL, signal.SIGSTOP
TURNS, EPISODES = 3, 8
PLAY = f'''
import asyncio, json, os
from pathlib import Path
from openai import AsyncOpenAI


def note(folder, **fields):
    with (folder / "log.jsonl").open("a") as log:
        log.write(json.dumps(fields) + "\\n")


async def play(model, row):
    """Asks in several turns. Between the first and the second, it waits until nobody holds it."""
    folder, messages = Path(row["folder"]), list(row["messages"])
    note(folder, number=row["number"], base_url=model.base_url, key=model.api_key, pid=os.getpid())
    async with AsyncOpenAI(base_url=model.base_url, api_key=model.api_key, max_retries=5, timeout=row["timeout"]) as client:
        for turn in range({TURNS}):
            answer = await client.chat.completions.create(model=model.name, messages=messages, max_tokens=6)
            messages += [{{"role": "assistant", "content": answer.choices[0].message.content}}, {{"role": "user", "content": str(turn)}}]
            note(folder, answered=turn)
            while turn == 0 and (folder / "hold").exists():
                await asyncio.sleep(0.02)
    return 1.0


play.episodes_per_process = 4
'''


def rows(folder: Path, timeout: float = 60.0) -> list[dict[str, Any]]:
    (folder / "hold").touch()
    return [{"folder": str(folder), "number": number, "timeout": timeout} for number in range(EPISODES)]


def log(folder: Path, field: str) -> list[dict[str, Any]]:
    lines = (folder / "log.jsonl").read_text().splitlines() if (folder / "log.jsonl").exists() else []
    return [entry for entry in map(json.loads, lines) if field in entry]


def all_think(player: EpisodePlayer, folder: Path) -> None:
    """Play until each agent has its first answer."""
    player.step_until(lambda: len(log(folder, "answered")) == EPISODES)


def all_call(player: EpisodePlayer, folder: Path) -> None:
    """Play until each agent waits for its second answer."""
    all_think(player, folder)
    player.engine.held = True
    (folder / "hold").unlink()
    player.step_until(lambda: len(player.engine.open) == EPISODES)


def gateway(player: EpisodePlayer, place: int) -> tuple[psutil.Process, str]:
    """One of the gateway processes, and its address."""
    guard = player.agent._gateways.links[place].process
    assert guard is not None
    (process,) = psutil.Process(guard.pid).children()
    (port,) = [one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    return process, f"http://127.0.0.1:{port}/v1"


def each_trains_once(player: EpisodePlayer, found: list[tuple[Rollout, Score]]) -> None:
    """Every trained token belongs to an answer of the engine, and no answer trains twice."""
    assert [score.value for _, score in found] == [1.0] * EPISODES, player.said
    unused = Counter((one.token_ids.tobytes(), one.logprobs.tobytes()) for one in player.engine.log)
    for rollout, _ in found:
        (segment,) = rollout.segments
        assert len(rollout.turn_lengths) == TURNS
        trained = segment.token_ids[segment.policy_mask], segment.logprobs[segment.policy_mask]
        for end, length in zip(np.cumsum(rollout.turn_lengths), rollout.turn_lengths, strict=True):
            unused[trained[0][end - length : end].tobytes(), trained[1][end - length : end].tobytes()] -= 1
    assert min(unused.values()) >= 0


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        pytest.param(KILL, all_call, id="killed while agents call"),
        pytest.param(STOP, all_call, id="stopped while agents call", marks=pytest.mark.full),
        pytest.param(KILL, all_think, id="killed while agents think", marks=pytest.mark.full),
        pytest.param(STOP, all_think, id="stopped while agents think", marks=pytest.mark.full),
    ],
)
def test_the_episodes_of_a_lost_gateway_are_played_again_and_those_of_the_other_go_on(tmp_path: Path, number: int, moment: Any) -> None:
    with EpisodePlayer(tmp_path, PLAY, workers=2, gateways=2, gateway_silence=2.0) as player:
        player.begin(rows(tmp_path, timeout=1.5))
        moment(player, tmp_path)
        (victim, its), (_, other) = gateway(player, 0), gateway(player, 1)
        os.kill(victim.pid, number)
        player.step_until(lambda: player.said)
        (tmp_path / "hold").unlink(missing_ok=True)
        player.engine.held = False
        found = player.step_until(lambda: player.producer.idle)
    assert not descendants()
    assert len(player.said) == 1
    assert "the gateway process of producer-0-g1" in player.said[0]
    places: dict[int, list[str]] = {}
    for entry in log(tmp_path, "number"):
        places.setdefault(entry["number"], []).append(entry["base_url"])
    assert Counter(len(urls) for urls in places.values()) == {1: 4, 2: 4}
    for first, *again in places.values():
        assert not again if first == other else (first, *again) == (its, again[0]) and again[0] not in (its, other)
    each_trains_once(player, found)


@pytest.mark.full
def test_a_gateway_that_stops_for_a_while_answers_the_retries_and_each_answer_trains_once(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, PLAY, workers=2, gateways=2) as player:
        player.begin(rows(tmp_path, timeout=1.0))
        all_call(player, tmp_path)
        victim, _ = gateway(player, 0)
        victim.suspend()
        player.engine.held = False
        found = player.step_until(lambda: len(log(tmp_path, "answered")) == EPISODES // 2 * (TURNS + 1))  # the other's are played
        threading.Event().wait(2.5)  # the clients give up, and ask again
        victim.resume()
        found += player.step_until(lambda: player.producer.idle)
    assert not player.said
    assert len(log(tmp_path, "number")) == EPISODES
    assert len(log(tmp_path, "answered")) == EPISODES * TURNS
    met = [sum(rollout.extra.get(name, 0.0) for name in ("retries", "cancelled")) for rollout, _ in found]
    assert sum(count > 0 for count in met) == EPISODES // 2, "each client of the stopped gateway has repeated its call"
    each_trains_once(player, found)


def test_a_client_that_retries_through_the_death_of_its_gateway_gets_no_answer_from_another_one(tmp_path: Path) -> None:
    """Not even if the other one has the same port."""
    asked: list[Ask] = []
    errors: list[Exception] = []

    async def generate(ask: Ask) -> Completion:
        asked.append(ask)
        raise AssertionError("no episode is open")

    async def in_its_place(port: int, client: threading.Thread) -> None:
        server, later = GatewayServer(), Gateway(FakeTokenizer(" abc"), generate)
        await server.start(later, port=port)
        await asyncio.to_thread(client.join)
        await server.stop()

    def call(base_url: str, key: str, retries: int) -> None:
        with OpenAI(base_url=base_url, api_key=key, max_retries=retries) as client:
            try:
                client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "guess"}], max_tokens=6)
            except APIError as error:
                errors.append(error)

    with EpisodePlayer(tmp_path, PLAY, workers=2, gateways=2) as player:
        player.begin(rows(tmp_path))
        all_call(player, tmp_path)
        (victim, its), (_, other) = gateway(player, 0), gateway(player, 1)
        key = next(entry["key"] for entry in log(tmp_path, "number") if entry["base_url"] == its)
        client = threading.Thread(target=call, args=(its, key, 5))
        client.start()
        player.step_until(lambda: len(player.engine.open) == EPISODES + 1)
        victim.kill()
        victim.wait(10)
        asyncio.run(in_its_place(int(its.rpartition(":")[2].removesuffix("/v1")), client))
        player.step_until(lambda: len(log(tmp_path, "number")) == EPISODES * 3 // 2)
        for base_url in (other, gateway(player, 0)[1]):
            call(base_url, key, 0)
        player.engine.held = False
        found = player.step_until(lambda: player.producer.idle)
    assert [getattr(error, "code", None) for error in errors] == ["invalid_api_key"] * 3
    assert not asked
    each_trains_once(player, found)


def test_what_is_sampled_does_not_depend_on_the_gateways(tmp_path: Path) -> None:
    sampled = []
    for gateways in (1, 3):
        folder = tmp_path / str(gateways)
        folder.mkdir()
        with EpisodePlayer(folder, PLAY, workers=3, gateways=gateways, episodes_per_process=2) as player:
            rows(folder)
            (folder / "hold").unlink()
            episodes = player.play(*({"folder": str(folder), "number": number, "timeout": 60.0} for number in range(EPISODES)))
        assert len({entry["base_url"] for entry in log(folder, "number")}) == gateways
        assert len({entry["pid"] for entry in log(folder, "number")}) <= 3
        sampled.append([[segment.token_ids.tolist() for segment in rollout.segments] for rollout, _ in episodes])
        for rollout, _ in episodes:
            assert 0 < rollout.extra["gateway_ms"] <= rollout.extra["gateway_ms_max"]
    assert sampled[0] == sampled[1]


def test_an_episode_goes_to_the_gateway_with_the_most_room(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, PLAY, workers=2, gateways=2) as player:
        long, *short = rows(tmp_path)[:4]
        (tmp_path / "free").mkdir()
        short = [{**row, "folder": str(tmp_path / "free")} for row in short]
        player.begin([long, short[0]])
        player.step_until(lambda: len(log(tmp_path / "free", "answered")) == TURNS and log(tmp_path, "answered"))
        for row in short[1:]:
            player.step_until(lambda: len(player.agent._gateways.links[1]._episodes) == 0)
            player.begin([row], first=row["number"])
            done = TURNS * row["number"]
            player.step_until(lambda done=done: len(log(tmp_path / "free", "answered")) == done)  # type: ignore[misc]
        (tmp_path / "hold").unlink()
        player.step_until(lambda: player.producer.idle)
    assert len({entry["base_url"] for entry in log(tmp_path / "free", "number")}) == 1
