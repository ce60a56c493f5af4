"""A game of two players with a tiny real model: it learns in self-play, and against a model that stays as it is."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester
from tests.integration.ray.faults import BackgroundRun
from tests.made_once import made_once
from tests.nim_game import GAME, rows, write_beginner
from tests.process_family import await_end, descendants

PATIENCE = 1800.0
"""Seconds: the machine may be busy."""


@pytest.fixture(scope="session")
def beginner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once("beginner", write_beginner, tmp_path_factory)


def nim_run(tester: RunTester, model: Path, players: dict[str, dict[str, Any]], steps: int, batch: int = 16, **sections: Any) -> str:
    """Write a run of the game."""
    tester.write("nim.py", GAME)
    log = str(tester.folder / "games.jsonl")
    tester.write_jsonl("train.jsonl", rows(batch * steps, seed=1, log=log))
    settings: dict[str, dict[str, Any]] = {
        "run": {"project": "nim", "run_dir": str(tester.folder / "runs"), "num_episodes": 1, "max_steps": steps},
        "model": {"model": str(model)},
        "data": {"dataset": str(tester.folder / "train.jsonl"), "system_prompt": "", "max_prompt_tokens": 16},
        "sampling": {
            "environment": str(tester.folder / "nim.py") + ":play",
            "num_generations": 16,
            "max_new_tokens": 24,
            "max_context_tokens": 96,
            "options": {"workers": 1, "players": players},
        },
        "inference": {"name": "transformers"},
        "training": {"name": "torch", "train_batch_size": batch, "learning_rate": 6e-4, "warmup_steps": 3, "min_lr_ratio": 0.5},
        "algorithm": {"name": "grpo", "entropy_coeff": 0.02},
    }
    merged = {name: {**settings.get(name, {}), **sections.get(name, {})} for name in settings | sections}
    return str(tester.write_toml("run.toml", {**merged, "rewards": [{"name": "environment"}]}))


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def metrics(tester: RunTester, run: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in (tester.folder / run / "metrics.jsonl").read_text().splitlines()]


def win_rate(tester: RunTester, model: Path, start: Path) -> float:
    """The share of games that a model wins against the one that it began as, both at temperature 1."""
    config = nim_run(tester, model, {"white": {}, "black": {"model": str(start)}}, 1)
    tester.write_jsonl("held_out.jsonl", rows(120, seed=2))
    games = ("-d", str(tester.folder / "held_out.jsonl"), "--eval-temperature", "1", "--eval-samples", "4")
    done = tester.run("eval", str(model), config, *games, "--json", timeout=PATIENCE).assert_ok()
    (task,) = done.json["tasks"].values()
    return float(task["figures"]["eval/held_out"])


PROBE = """
import asyncio, json
from pathlib import Path
from nim_rules import play as nim

ALONE = asyncio.Lock()


class Alone:
    \"\"\"A player that answers one request at a time: a batch of several may round otherwise.\"\"\"

    def __init__(self, player):
        self.player = player

    async def chat(self, messages, **settings):
        async with ALONE:
            return await self.player.chat(messages, **settings)


async def play(model, row):
    \"\"\"Asks the frozen player the same question before each game.\"\"\"
    question, black = [{"role": "user", "content": "7"}], model.players["black"]
    async with ALONE:
        asked = await black.client.chat.completions.create(model="m", messages=question, max_tokens=1, logprobs=True)
    choice = asked.choices[0]
    with Path(row["probes"]).open("a") as log:
        log.write(json.dumps([choice.message.content, [part.logprob for part in choice.logprobs.content]]) + chr(10))
    model.players["black"] = Alone(black)
    return await nim(model, row)


play.episodes_per_process = 128
"""


def with_probe(tester: RunTester, model: Path, start: Path, steps: int) -> str:
    """A run against the frozen start, which is greedy and is asked a question before each game."""
    config = nim_run(tester, model, {"white": {}, "black": {"model": str(start), "temperature": 0.0}}, steps, batch=4)
    tester.write("nim_rules.py", GAME)
    tester.write("nim.py", "import sys\nsys.path.insert(0, " + repr(str(tester.folder)) + ")\n" + PROBE)
    extra = {"probes": str(tester.folder / "probes.jsonl"), "log": str(tester.folder / "games.jsonl")}
    tester.write_jsonl("train.jsonl", rows(4 * steps, seed=1, **extra))
    return config


@pytest.mark.full
def test_a_frozen_model_stays_as_it_is_bit_for_bit_while_the_policy_learns(tmp_path: Path, beginner: Path) -> None:
    tester, before = RunTester(tmp_path), digest(beginner)
    done = tester.run("train", with_probe(tester, beginner, beginner, 4), "--json", timeout=PATIENCE).assert_ok()
    run = tester.folder / done.json["run"]
    (policy,) = run.glob("checkpoints/step-*/model")
    assert digest(beginner) == before, "its weights"
    assert digest(policy) != before, "those of the policy"
    probes = (tmp_path / "probes.jsonl").read_text().splitlines()
    assert (len(probes), len(set(probes))) == (4 * 4 * 16, 1), "the same token with the same log probability"
    answers: dict[str, set[str]] = {}
    for game in map(json.loads, (tmp_path / "games.jsonl").read_text().splitlines()):
        chat = game["chats"]["black"]
        for place in range(1, len(chat), 2):
            answers.setdefault(json.dumps(chat[:place]), set()).add(chat[place]["content"])
    assert answers
    assert all(len(said) == 1 for said in answers.values())
    assert {row["conversation/episode_ok"] for row in metrics(tester, str(run))} == {1.0}


@pytest.mark.full
def test_nothing_is_left_of_a_driver_that_is_killed_while_a_frozen_model_plays(tmp_path: Path, beginner: Path) -> None:
    tester = RunTester(tmp_path)
    with BackgroundRun(tester, ("train", with_probe(tester, beginner, beginner, 50), "--json"), tmp_path) as run:
        run.reach(1)
        family = descendants(run.process.pid)
        titles = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in family]
        assert len([title for title in titles if b"frozen_process" in title]) == 2, "the engine and its guard"
        run.process.kill()
        await_end(family, 20.0)


@pytest.mark.nightly
@pytest.mark.timeout(PATIENCE)
def test_a_game_of_two_players_learns_in_self_play(tmp_path: Path, beginner: Path) -> None:
    tester = RunTester(tmp_path)
    done = tester.run("train", nim_run(tester, beginner, {"white": {}, "black": {}}, 40), "--json", timeout=PATIENCE).assert_ok()
    run = tester.folder / done.json["run"]
    best = [row["conversation/best_moves"] for row in metrics(tester, str(run))]
    (policy,) = run.glob("checkpoints/step-*/model")
    rates = win_rate(tester, beginner, beginner), win_rate(tester, policy, beginner)
    print(f"best moves: {best[0]:.2f} -> {sum(best[-5:]) / 5:.2f}; games won against the start: {rates[0]:.2f} -> {rates[1]:.2f}")
    assert abs(rates[0] - 0.5) < 0.1
    assert rates[1] > 0.7
