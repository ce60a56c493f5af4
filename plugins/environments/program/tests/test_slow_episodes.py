"""Episodes that are cut, and episodes that continue over updates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from episode_player import TOKENS, EpisodePlayer, descendants

from rlcore.api import Completion
from rlcore.api.runtime import Role
from rlcore.testing import FakeTokenizer, RunOutcome, RunTester

GAME = '''
import asyncio
from pathlib import Path

BEGUN = []


async def play(model, row):
    """Ask once. Each episode whose number is a multiple of HANGS then takes an hour."""
    BEGUN.append(row["gt_answer"])
    hangs = len(BEGUN) % HANGS == 0
    with Path(LOG).open("a") as log:
        log.write(row["gt_answer"] + "\\n")
    answer = await model.chat(list(row["messages"]), max_tokens=2)
    await asyncio.sleep(3600 if hangs else 0.0)
    return float(row["gt_answer"] in answer["content"])


play.episodes_per_process = EPISODES
'''


def played(tmp_path: Path, *, hangs: int, episodes: int, sampling: dict[str, Any], **sections: Any) -> tuple[RunTester, RunOutcome]:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    words = {"LOG": repr(str(tmp_path / "begun")), "HANGS": str(hangs), "EPISODES": str(episodes)}
    source = GAME
    for word, value in words.items():
        source = source.replace(word, value)
    tester.write("game.py", source)
    own = {"environment": "./game.py:play", "max_new_tokens": 2, "max_context_tokens": 64, "options": {"workers": 1, "deadline": 1800.0}}
    config = tester.fake_run(sampling={**own, **sampling}, log={"rollout_interval": 1}, **sections)
    done = tester.run("train", config, "-rt", "environment", "--json").assert_ok()
    assert not descendants()
    return tester, done


def metrics(tester: RunTester, done: RunOutcome) -> list[dict[str, float]]:
    return [json.loads(line) for line in (tester.folder / done.json["run"] / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("staleness", [0, 1])
def test_episodes_that_hang_are_cut_and_their_tokens_are_counted(tmp_path: Path, staleness: int) -> None:
    tester, done = played(
        tmp_path,
        hangs=3,
        episodes=64,
        sampling={"num_generations": 2, "oversampling": 2},
        schedule={"max_staleness": staleness},
    )
    assert done.json["ledger"] == {"trained": 9, "filtered": 0, "failed": 0}
    rows = metrics(tester, done)
    assert max(row.get("cut_share", 0.0) for row in rows) > 0
    assert sum(row["time/producers/wasted"] for row in rows) > 0


def test_an_episode_that_waits_for_a_process_is_cut_before_it_begins(tmp_path: Path) -> None:
    tester, done = played(tmp_path, hangs=10_000, episodes=1, sampling={"num_generations": 1, "oversampling": 7})
    groups = done.json["ledger"]["trained"]
    begun = (tester.folder / "begun").read_text().splitlines()
    assert groups <= len(begun) <= groups * 4, "more were begun than one that ends, and those that begin before the cut arrives"


CALL = '{"name": "look", "arguments": {}}'
LOOKING = """
import asyncio

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


async def play(model, row):
    answer = await model.chat(list(row["messages"]), tools=TOOLS)
    await asyncio.sleep(0.5)
    return float(bool(answer.get("tool_calls")) == row["calls"])
"""


@pytest.mark.parametrize("calls", [True, False])
def test_the_time_in_which_an_episode_runs_a_tool_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: bool) -> None:
    tokens = "".join(dict.fromkeys(TOKENS + CALL))
    with EpisodePlayer(tmp_path, LOOKING, tokens=tokens, tool_parser="json") as player:
        ids = np.array(FakeTokenizer(tokens).encode(CALL if calls else "a long time ago"), np.int32)
        poll = player.engine.poll

        def scripted(timeout: float) -> list[Completion]:
            values: Any = {"token_ids": ids, "logprobs": np.zeros(len(ids)), "versions": np.zeros(len(ids))}
            return [replace(one, **values) for one in poll(timeout)]

        monkeypatch.setattr(player.engine, "poll", scripted)
        ((_, score),) = player.play({"calls": calls})
        seconds = player.producer._account.report("p", Role.PRODUCER).seconds
    assert score.value == 1.0
    assert ("waiting for tools" in seconds) is calls
