"""Episodes of several players: the policy under two names, a frozen model with an engine of its own, and an endpoint."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from episode_player import EpisodePlayer, descendants

from rlcore.api import PluginError, RunError
from rlcore.api.conversations import RolloutBranch
from tests.letters_model import write_model
from tests.levels import need
from tests.made_once import made_once

KILL, STOP = signal.SIGKILL, signal.SIGSTOP
TALK = '''
import asyncio, json
from pathlib import Path
from rlcore.api.environments import EpisodeResult


async def play(model, row):
    """The players of the row speak in turn. After the first of them, all wait while there is a file ``hold``."""
    said, keys = [], {}
    for name, player in model.players.items():
        keys[name] = [player.base_url, player.api_key, player.name]
    if row.get("log"):
        Path(row["log"]).open("a").write(json.dumps(keys) + chr(10))
    for name in row["order"]:
        try:
            answer = await model.players[name].chat([{"role": "user", "content": row.get("content", "abc")}], max_tokens=4)
            said.append([name, answer["content"]])
        except Exception as error:
            if not row.get("goes_on"):
                raise
            said.append([name, type(error).__name__])
        while row.get("hold") and Path(row["hold"]).exists():
            await asyncio.sleep(0.02)
    main = [name for name, player in model.players.items() if player.api_key == model.api_key]
    return EpisodeResult(reward=0.5, player_rewards=row.get("rewards", {}), extra={"said": said, "keys": keys, "main": main})


play.episodes_per_process = 8
'''


@pytest.fixture(scope="session")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once("frozen-letters", write_model, tmp_path_factory)


def keys_in(log: Path) -> list[dict[str, list[str]]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def engines_of(player: EpisodePlayer) -> list[psutil.Process]:
    """The processes of the frozen player's engine: one, or none while it is started anew."""
    (engine,) = player.agent._players.engines
    assert engine.process is not None
    try:
        return list(psutil.Process(engine.process.pid).children())
    except psutil.NoSuchProcess:
        return []


def engine_of(player: EpisodePlayer) -> psutil.Process:
    """The process of the frozen player's engine."""
    (process,) = engines_of(player)
    return process


def status(base_url: str, key: str) -> int:
    """The status of a call with a key."""
    body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 1}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{base_url}/chat/completions", body, headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_policy_plays_under_two_names_against_a_frozen_model(tmp_path: Path, letters: Path) -> None:
    log = tmp_path / "log"
    players = {"black": {"model": str(letters)}, "white": {}, "red": {"model": "policy"}}
    row = {"order": ["white", "black", "red", "black"], "rewards": {"white": 1.0, "red": -1.0, "black": 7.0}, "log": str(log)}
    with EpisodePlayer(tmp_path, TALK, workers=1, players=players) as player:
        found = player.play(row, row, copies=2)
        statuses = [status(url, key) for keys in keys_in(log) for url, key, _ in keys.values()]
        assert not player.said
    assert not descendants()
    for rollout, _ in found:
        assert rollout.branches == (RolloutBranch(1, "white"), RolloutBranch(1, "red"))
        assert rollout.extra["main"] == ["white"], "the first player that is the policy"
        assert rollout.extra["branch_rewards"] == [1.0, -1.0]
        assert (rollout.extra["reward_white"], rollout.extra["reward_red"], "reward_black" in rollout.extra) == (1.0, -1.0, False)
        assert (rollout.extra["reward"], len(rollout.turn_lengths), rollout.extra["calls"]) == (0.5, 2, 2.0)
        assert rollout.extra["calls_black"] == 2
        models = {name: model for name, (_, _, model) in rollout.extra["keys"].items()}
        assert models == {"black": "black", "white": "policy", "red": "policy"}
    assert statuses == [410] * 12, "all keys of all players end with their episode"
    assert len({tuple(map(tuple, rollout.extra["said"])) for rollout, _ in found}) == 4, "each episode has random streams of its own"
    (tmp_path / "again").mkdir()
    with EpisodePlayer(tmp_path / "again", TALK, workers=2, gateways=2, players=players) as player:
        again = player.play({**row, "log": None}, {**row, "log": None}, copies=2)
    assert [one.extra["said"] for one, _ in again] == [one.extra["said"] for one, _ in found], "and the same ones if it is repeated"


@pytest.mark.parametrize("number", [pytest.param(KILL, id="killed"), pytest.param(STOP, id="stopped", marks=pytest.mark.full)])
def test_an_engine_that_dies_or_stops_in_mid_game_is_started_anew_and_the_game_is_played_again(
    tmp_path: Path, letters: Path, number: int
) -> None:
    log, hold = tmp_path / "log", tmp_path / "hold"
    hold.touch()
    row = {"order": ["black", "white", "black"], "hold": str(hold), "log": str(log)}
    players = {"black": {"model": str(letters)}, "white": {}}
    with EpisodePlayer(tmp_path, TALK, workers=1, players=players, gateway_silence=3.0) as player:
        player.begin([row])
        player.step_until(lambda: len(keys_in(log)) == 1)
        victim = engine_of(player)
        os.kill(victim.pid, number)
        hold.unlink()
        ((rollout, score),) = player.step_until(lambda: player.producer.idle)
        assert not victim.is_running()
        assert len(player.said) == 1
    assert not descendants()
    assert "the engine of player black" in player.said[0]
    assert ("gave no sign of life for 3 s" if number == STOP else "was killed by signal 9 (Killed);") in player.said[0]
    assert (rollout.extra["outcome"], score.value) == ("ok", 0.5)
    first, second = keys_in(log)
    assert not {key for _, key, _ in first.values()} & {key for _, key, _ in second.values()}


@pytest.mark.full
def test_an_engine_that_dies_again_and_again_ends_the_run(tmp_path: Path, letters: Path) -> None:
    log, hold = tmp_path / "log", tmp_path / "hold"
    hold.touch()
    row = {"order": ["white", "black"], "hold": str(hold), "log": str(log)}
    players = {"black": {"model": str(letters)}, "white": {}}
    with EpisodePlayer(tmp_path, TALK, workers=1, players=players, gateway_restarts=1, error_budget=1.0) as player:
        player.begin([row])
        player.step_until(lambda: len(keys_in(log)) == 1)
        engine_of(player).kill()
        player.step_until(lambda: len(player.said) == 1)
        player.step_until(lambda: kill_new(player))  # before it has answered anything
        with pytest.raises(RunError, match=r"the engine of player black was killed by signal 9 .* that was 2 times without an answer"):
            player.step_until(lambda: False)
    assert not descendants()


def go_on(player: EpisodePlayer, row: dict[str, Any]) -> None:
    """Play until the run ends, which no episode outlives."""
    for number in range(1, 100):
        player.step_until(lambda: player.producer.idle)
        player.begin([row], first=number)


def kill_new(player: EpisodePlayer) -> bool:
    """Kill the engine's process once there is one."""
    found = engines_of(player)
    for process in found:
        process.kill()
    return bool(found)


def test_a_frozen_model_that_cannot_be_loaded_ends_the_run_with_one_sentence(tmp_path: Path, letters: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in letters.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "tokenizer.json").write_text("{}")
    with EpisodePlayer(tmp_path, TALK, workers=1, players={"black": {"model": str(broken)}, "white": {}}) as player:
        player.begin([{"order": ["black"]}])
        with pytest.raises(PluginError, match=r"sampling\.options\.players\.black: tokenizer .* cannot be loaded"):
            player.step_until(lambda: False)
    assert not descendants()


class Endpoint(ThreadingHTTPServer):
    """Answers with these statuses, one after another, then with 200. ``seen``: the key and the path of each request."""

    daemon_threads = True

    def __init__(self, statuses: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.statuses, self.seen = statuses, list[tuple[str, str]]()
        self.base_url = f"http://127.0.0.1:{self.server_port}/v1"


class _Answer(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        self.server.seen.append((self.headers.get("Authorization", ""), self.path))
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = self.server.statuses.pop(0) if self.server.statuses else 200
        message = {"role": "assistant", "content": asked["model"]}
        answer = {"id": "x", "choices": [{"message": message}]} if number == 200 else {"error": {"message": "no memory is left"}}
        body = json.dumps(answer).encode()
        self.send_response(number)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def endpoint(*statuses: int) -> Iterator[Endpoint]:
    server = Endpoint(list(statuses))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def with_endpoint(server: Endpoint, **more: str) -> dict[str, Any]:
    return {"white": {}, "black": {"base_url": server.base_url, "model": "other", **more}}


def test_an_endpoint_gets_its_own_key_and_the_program_gets_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHERS_KEY", "secret")
    with endpoint() as server, EpisodePlayer(tmp_path, TALK, workers=1, players=with_endpoint(server, key_variable="OTHERS_KEY")) as player:
        ((rollout, _),) = player.play({"order": ["black", "white"]})
    assert server.seen == [("Bearer secret", "/v1/chat/completions")]
    assert rollout.extra["said"][0] == ["black", "other"]
    url, key, name = rollout.extra["keys"]["black"]
    assert (url, name) == (rollout.extra["keys"]["white"][0], "other")
    assert key != "secret"


@pytest.mark.parametrize(
    ("statuses", "reason"),
    [
        ([500, 500], "player black: its server answered 500: "),
        ([429], "player black: its server answered 429: "),
        ([500, 200], ""),
        ([400], ""),
    ],
)
def test_an_endpoint_that_does_not_answer_is_a_failure_of_the_environment(tmp_path: Path, statuses: list[int], reason: str) -> None:
    row = {"order": ["white", *["black"] * len(statuses)], "goes_on": True}
    with endpoint(*statuses) as server, EpisodePlayer(tmp_path, TALK, workers=1, players=with_endpoint(server)) as player:
        ((rollout, score),) = player.play(row)
    if not reason:  # it has answered the same request later; or the request was wrong, which the agent heard of
        assert (rollout.extra["outcome"], score.value, score.in_loss) == ("ok", 0.5, True)
    else:
        assert rollout.extra["outcome"] == "environment"
        assert rollout.extra["reason"].startswith(reason), rollout.extra["reason"]
        assert "no memory is left" in rollout.extra["reason"]
        assert (score.in_loss, score.in_statistics) == (False, False)


def test_an_endpoint_that_is_gone_is_a_failure_of_the_environment_and_not_of_the_agent(tmp_path: Path) -> None:
    with endpoint() as server:
        players = with_endpoint(server)
    with EpisodePlayer(tmp_path, TALK, workers=1, players=players) as player:
        ((rollout, score),) = player.play({"order": ["white", "black"]})
    assert rollout.extra["outcome"] == "environment"
    assert rollout.extra["reason"].startswith("player black: its server did not answer (ConnectError")
    assert not score.in_loss


def test_a_reward_for_a_player_that_does_not_exist_is_a_failure_of_the_environment(tmp_path: Path) -> None:
    row = {"order": ["white"], "rewards": {"whit": 1.0}}
    with EpisodePlayer(tmp_path, TALK, workers=1, players={"white": {}, "black": {}}) as player:
        ((rollout, _),) = player.play(row)
    reason = "the environment rewards the player 'whit', but the players of the run are white, black"
    assert (rollout.extra["outcome"], rollout.extra["reason"]) == ("environment", reason)


def test_a_program_in_a_sandbox_reaches_a_frozen_model_through_the_gateway(tmp_path: Path, letters: Path) -> None:
    need("namespaces")
    players, row = {"black": {"model": str(letters)}, "white": {}}, {"order": ["black", "white"]}
    with EpisodePlayer(tmp_path, TALK, workers=1, players=players, sandbox={"level": "namespaces"}) as player:
        ((rollout, _),) = player.play(row)
    assert not descendants()
    assert [name for name, _ in rollout.extra["said"]] == ["black", "white"]
    assert len({url for url, _, _ in rollout.extra["keys"].values()}) == 1


@pytest.mark.full
def test_a_model_whose_files_change_during_the_run_ends_it(tmp_path: Path, letters: Path) -> None:
    model, log, hold = tmp_path / "frozen", tmp_path / "log", tmp_path / "hold"
    shutil.copytree(letters, model)
    hold.touch()
    row = {"order": ["black", "white"], "hold": str(hold), "log": str(log)}
    with EpisodePlayer(tmp_path, TALK, workers=1, players={"black": {"model": str(model)}, "white": {}}) as player:
        player.begin([row])
        player.step_until(lambda: len(keys_in(log)) == 1)
        (model / "config.json").write_text((model / "config.json").read_text() + "\n")
        engine_of(player).kill()
        hold.unlink()
        with pytest.raises(RunError, match=r"players\.black: the files of .* have changed during the run"):
            go_on(player, row)
    assert not descendants()
