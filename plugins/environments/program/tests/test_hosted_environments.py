"""Functions and classes as environments: with OpenAI's client, in threads, and in another Python."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from episode_player import EpisodePlayer, descendants, words_of
from rlcore_gateway import host
from rlcore_plugin_agents.function_environment import environment_class

from rlcore.api.environments import TurnEnvironment

WITH_OPENAI = '''
async def play(model, row):
    """Uses the client of OpenAI."""
    print("this is no answer")
    answer = await model.client.chat.completions.create(model=model.name, messages=row["messages"], max_tokens=3)
    return float(answer.id.startswith("chatcmpl-"))
'''
AT_THE_SAME_TIME = '''
import asyncio
from rlcore.api.environments import EpisodeResult


async def play(model, row):
    """Asks twice at the same time in the second of three turns, and goes on with the first answer."""
    messages, rewards = list(row["messages"]), {}
    for turn in range(3):
        answers = await asyncio.gather(*(model.chat(messages, max_tokens=3) for _ in range(1 + (turn == 1))))
        rewards.update({answer["id"]: 1.0 for answer in answers})
        messages += [{"role": "assistant", "content": answers[0]["content"]}, {"role": "user", "content": "higher"}]
    return EpisodeResult(reward=4.0, turn_rewards=rewards)


play.episodes_per_process = 64
'''
PLAIN = '''
import json, time, urllib.request


def play(model, row):
    """Blocks, as programs of a single episode do."""
    body = json.dumps({"model": model.name, "messages": row["messages"], "max_tokens": 3}).encode()
    headers = {"Authorization": "Bearer " + model.api_key, "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(model.base_url + "/chat/completions", body, headers)) as answer:
        return {"reward": 1.0} if row.get("wrong") else 1


play.episodes_per_process = 4
'''
ENDS_IN_A_TASK = """
import asyncio
import os


async def ends():
    raise SystemExit(3)


async def play(model, row):
    await model.chat(row["messages"], max_tokens=3)
    if row.get("ends"):
        task = asyncio.create_task(ends())
        await task
    return float(os.getpid())


play.episodes_per_process = 3
"""
ENDS_IN_STEP = """
from rlcore.api.environments import TurnEnvironment


class Game(TurnEnvironment):
    episodes_per_process = 3

    def reset(self, row):
        self.row = row
        return self.ends_in("reset")

    def step(self, answer):
        return self.ends_in("step"), 1.0, True

    def ends_in(self, what):
        if self.row.get("ends") == what:
            raise SystemExit(3)
        return "guess"
"""


def test_a_task_that_calls_sys_exit_costs_its_own_episode(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, ENDS_IN_A_TASK, workers=1, error_budget=1.0) as player:
        (one, first), (ended, score), (other, last) = player.play({}, {"ends": True}, {})
        ((later, after),) = player.play({}, first=3)
    assert [rollout.extra["outcome"] for rollout in (one, ended, other, later)] == ["ok", "crashed", "ok", "ok"]
    assert "SystemExit: 3" in score.reason
    assert first.value == last.value == after.value, "one process"


@pytest.mark.parametrize("where", ["reset", "step"])
def test_a_turn_that_calls_sys_exit_is_a_failure_of_the_environment(tmp_path: Path, where: str) -> None:
    with EpisodePlayer(tmp_path, ENDS_IN_STEP, workers=1, error_budget=1.0, on_crash="zero") as player:
        (ended, score), (good, _) = player.play({"ends": where}, {})
    assert (ended.extra["outcome"], good.extra["outcome"]) == ("environment", "ok")
    assert "SystemExit: 3" in score.reason


def test_the_client_is_that_of_openai(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, WITH_OPENAI, workers=1) as player:
        ((rollout, score),) = player.play({})
    assert score.value == 1.0
    assert rollout.extra["calls"] == 1


def test_calls_at_the_same_time_fork_and_each_answer_of_the_engine_trains_once(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, AT_THE_SAME_TIME, workers=1) as player:
        episodes = player.play(*({"number": number} for number in range(8)), copies=4)
    log = Counter((one.token_ids.tobytes(), one.logprobs.tobytes()) for one in player.engine.log)
    assert len(episodes) == 32
    for rollout, _ in episodes:
        assert (len(rollout.segments), len(rollout.turn_lengths), rollout.turn_rewards) == (2, 4, (1.0,) * 4)
        trained = [np.concatenate([getattr(one, name)[one.policy_mask] for one in rollout.segments]) for name in ("token_ids", "logprobs")]
        for end, length in zip(np.cumsum(rollout.turn_lengths), rollout.turn_lengths, strict=True):
            log[trained[0][end - length : end].tobytes(), trained[1][end - length : end].tobytes()] -= 1
    assert set(log.values()) == {0}


def test_a_plain_function_plays_in_threads_of_one_process(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, PLAIN, workers=1) as player:
        *good, (bad, score) = player.play({}, {}, {"wrong": True})
        assert len([child for child in descendants() if "rlcore_gateway.host" in words_of(child)]) == 1
    assert [(rollout.extra["outcome"], score.value) for rollout, score in good] == [("ok", 1.0)] * 2
    assert bad.extra["outcome"] == "environment"
    assert score.reason == "_EnvironmentFailure: play returned dict; it must return an EpisodeResult, a number or None"


def test_a_class_plays_in_the_environment_that_it_names(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    (site,) = (tmp_path / "other").glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(sysconfig.get_path("purelib"))
    source = f'''
import sys
from rlcore.api.environments import Environment, EpisodeResult


class Game(Environment):
    """Tells where it plays."""

    environment = {str(tmp_path / "other")!r}

    async def play(self, model, row):
        await model.chat(row["messages"], max_tokens=1)
        return EpisodeResult(reward=1.0, extra={{"prefix": sys.prefix}})
'''
    with EpisodePlayer(tmp_path, source, workers=1) as player:
        ((rollout, _),) = player.play({})
    assert rollout.extra["prefix"] == str(tmp_path / "other")


class Looks(TurnEnvironment):
    tools = ({"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}},)

    def reset(self, row: Mapping[str, Any]) -> str:
        return "guess"

    def step(self, answer: Mapping[str, Any]) -> tuple[str, float, bool]:
        return "", 1.0, True


class Asked:
    """Keeps the settings of a call."""

    settings: Mapping[str, Any] = {}

    async def chat(self, messages: Any, **settings: Any) -> dict[str, Any]:
        self.settings = settings
        return {"id": "c1", "role": "assistant", "content": ""}


def test_a_class_offers_its_tools_to_the_policy() -> None:
    model, rewards = Asked(), dict[str, float]()
    asyncio.run(host._turns(Looks(), model, {}, rewards))  # type: ignore[arg-type]
    assert model.settings == {"tools": list(Looks.tools)}
    assert rewards == {"c1": 1.0}


def test_plain_functions_that_hang_keep_no_place_from_others() -> None:
    hangs = threading.Event()

    def play(model: Any, row: Mapping[str, Any]) -> float:
        if row["hangs"]:
            hangs.wait(30)
        return 1.0

    async def run() -> list[Any]:
        environment = environment_class(play)()  # type: ignore[misc]
        late = [asyncio.ensure_future(environment.play(None, {"hangs": True})) for _ in range(40)]
        await asyncio.sleep(0)
        try:
            return [await asyncio.wait_for(environment.play(None, {"hangs": False}), 20) for _ in range(3)]
        finally:
            hangs.set()
            await asyncio.gather(*late)

    assert asyncio.run(run()) == [1.0, 1.0, 1.0]
