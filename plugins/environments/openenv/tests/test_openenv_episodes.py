"""Episodes with the package openenv, in the environment that ``rlcore env build openenv`` makes. The engine is a fake one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from rlcore_plugin_openenv.options import OpenEnvOptions

from rlcore.api import PluginError, Rollout, Score

sys.path.insert(0, str(Path(__file__).parents[2] / "program" / "tests"))
from episode_player import TOKENS, EpisodePlayer, app_served, descendants, words_of

ENVIRONMENT = os.environ.get("RLCORE_TEST_OPENENV", "")
pytestmark = pytest.mark.skipif(not ENVIRONMENT, reason="RLCORE_TEST_OPENENV names no environment")
AUTHORED = Path(__file__).parent / "authored"


def played_by(folder: Path, options: dict[str, Any], **words: Any) -> EpisodePlayer:
    made = OpenEnvOptions(**{"folder": AUTHORED, "prompt": "guessing:hint", "action": "guessing:guess", **options})
    return EpisodePlayer(folder, "openenv", made, **{"workers": 2, "max_call_tokens": 3, **words})


def rows(count: int, **reset: Any) -> list[dict[str, Any]]:
    return [{"reset": {"seed": seed, **reset}} for seed in range(count)]


def assert_ledger_is_the_engines(player: EpisodePlayer, episodes: list[tuple[Rollout, Score]]) -> None:
    log = sorted(tuple(one.token_ids.tolist()) for one in player.engine.log)
    trained = []
    for rollout, _ in episodes:
        tokens = np.concatenate([one.token_ids[one.policy_mask] for one in rollout.segments]).tolist()
        for length in rollout.turn_lengths:
            trained.append(tuple(tokens[:length]))
            tokens = tokens[length:]
    assert sorted(trained) == log


def played(player: EpisodePlayer, *episodes: dict[str, Any], **settings: Any) -> list[tuple[Rollout, Score]]:
    """Play an episode for each row. Each process starts two Pythons, which takes long on a busy machine."""
    player.begin(episodes, **settings)
    found = until(player, lambda: player.producer.idle)
    assert not player.engine.open
    return sorted(found, key=lambda pair: (int(pair[0].prompt_id[1:]), pair[0].index))


def until(player: EpisodePlayer, done: Callable[[], object]) -> list[tuple[Rollout, Score]]:
    """Generate until a condition holds."""
    return player.step_until(done, 240)


def servers() -> list[psutil.Process]:
    return [one for one in descendants() if "uvicorn" in words_of(one)]


def outcomes(episodes: list[tuple[Rollout, Score]]) -> list[str]:
    return [str(rollout.extra["outcome"]) for rollout, _ in episodes]


def test_steps_on_servers_of_its_own_train_what_was_sampled(tmp_path: Path) -> None:
    with played_by(tmp_path, {"app": "guessing:app"}) as player:
        episodes = played(player, *rows(8), copies=4)
    assert_ledger_is_the_engines(player, episodes)
    assert outcomes(episodes) == ["ok"] * 32
    for rollout, score in episodes:
        assert score.value == sum(rollout.turn_rewards) == float(rollout.extra["steps"] < 4 or score.value)
        assert rollout.extra["state"]["step_count"] == rollout.extra["steps"] == rollout.extra["calls"]
    assert descendants() == []


def test_episodes_wait_for_the_only_session_of_a_server_and_do_not_fail(tmp_path: Path) -> None:
    with (
        app_served(Path(ENVIRONMENT), "guessing:app", AUTHORED) as (address, _),
        played_by(tmp_path, {"address": address}, episodes_per_process=4) as player,
    ):
        episodes = played(player, *rows(12))
    assert outcomes(episodes) == ["ok"] * 12
    assert sum(rollout.extra["waited_seconds"] > 0 for rollout, _ in episodes) >= 6


def test_a_server_with_four_sessions_plays_four_episodes_at_the_same_time(tmp_path: Path) -> None:
    with (
        app_served(Path(ENVIRONMENT), "guessing:four", AUTHORED) as (address, _),
        played_by(tmp_path, {"address": address}, workers=1, episodes_per_process=4) as player,
    ):
        player.engine.held = True
        player.begin(rows(4))
        until(player, lambda: len(player.engine.open) == 4)
        player.engine.held = False
        episodes = until(player, lambda: player.producer.idle)
    assert [rollout.extra["waited_seconds"] for rollout, _ in episodes] == [0.0] * 4


@pytest.mark.parametrize(("how", "reward", "bad"), [("tell", None, 3), ("end", -1.0, 1)])
def test_an_answer_that_is_no_action_is_the_policys_fault(tmp_path: Path, how: str, reward: float | None, bad: int) -> None:
    options = {"app": "guessing:app", "action": "json", "on_bad_action": how, "bad_action_reward": -1.0, "max_steps": 3}
    with played_by(tmp_path, options, workers=1) as player:
        ((rollout, _),) = played(player, {})
    assert (rollout.extra["outcome"], rollout.extra["reward"], rollout.extra["bad_actions"]) == ("ok", reward, bad)


def test_an_action_that_the_server_refuses_is_the_policys_fault(tmp_path: Path) -> None:
    with played_by(tmp_path, {"app": "guessing:app", "action": "jump", "max_steps": 2}, workers=1) as player:
        ((rollout, _),) = played(player, {})
    assert (rollout.extra["outcome"], rollout.extra["bad_actions"]) == ("ok", 2)
    assert "That is not a valid action: the environment has no such action" in [turn.content for turn in rollout.turns]


def test_what_goes_wrong_on_a_server_of_its_own_has_the_declared_outcome_and_the_next_episode_is_played(tmp_path: Path) -> None:
    modes = ("raise", "crash", "unscored", "hang", "")
    with played_by(tmp_path, {"app": "guessing:app", "message_seconds": 5.0}, workers=1) as player:
        episodes = played(player, *({"reset": {"mode": mode, "seed": 1}} for mode in modes))
    raises, crashes, unscored, hangs, good = episodes
    assert outcomes(episodes) == ["environment", "lost", "ok", "environment", "ok"]
    assert raises[1].reason.startswith("InfrastructureError: the server failed in step: the disk is gone (EXECUTION_ERROR)")
    assert (
        crashes[1].reason
        == "its process was killed by signal 9 (Killed): the server ended with exit code 7; the first attempt was lost, too"
    )
    assert hangs[1].reason.startswith("InfrastructureError: the server did not answer step within 5 s (message_seconds)")
    assert (unscored[0].extra["reward"], good[0].extra["reward"]) == (None, good[1].value)
    assert [score.in_loss for _, score in (raises, crashes, hangs)] == [False] * 3
    assert descendants() == []


def test_a_server_of_its_own_that_is_killed_costs_nothing_but_time(tmp_path: Path) -> None:
    with played_by(tmp_path, {"app": "guessing:app"}, workers=1) as player:
        player.engine.held = True
        player.begin(rows(1))
        until(player, lambda: player.engine.open)
        (server,) = servers()
        server.kill()
        until(player, lambda: server.pid not in [other.pid for other in servers()] and len(player.engine.open) == 2)
        player.engine.held = False
        ((rollout, _),) = until(player, lambda: player.producer.idle)
    assert rollout.extra["outcome"] == "ok"


def test_an_episode_whose_server_hangs_to_its_deadline_is_too_late(tmp_path: Path) -> None:
    with played_by(tmp_path, {"app": "guessing:app"}, workers=1, deadline=5.0, cancel_seconds=5.0) as player:
        ((rollout, _),) = played(player, {"reset": {"mode": "hang"}})
    assert rollout.extra["outcome"] == "timeout"
    assert descendants() == []


def test_a_server_of_others_that_dies_is_a_failure_of_the_environment_and_no_step_is_made_in_a_fresh_one(tmp_path: Path) -> None:
    with (
        app_served(Path(ENVIRONMENT), "guessing:app", AUTHORED) as (address, process),
        played_by(tmp_path, {"address": address}, workers=1) as player,
    ):
        player.engine.held = True
        player.begin(rows(1))
        until(player, lambda: player.engine.open)
        process.kill()
        process.wait()
        words = [str(Path(ENVIRONMENT, "bin", "python")), "-m", "uvicorn", "guessing:app", "--port", address.rpartition(":")[2]]
        with subprocess.Popen(words, cwd=AUTHORED, stderr=subprocess.PIPE, text=True) as again:
            assert again.stderr is not None
            assert any("Uvicorn running" in line for line in again.stderr)
            player.engine.held = False
            ((rollout, score),) = until(player, lambda: player.producer.idle)
            again.kill()
    assert rollout.extra["outcome"] == "environment"
    assert score.reason.startswith("InfrastructureError: the server was gone in step: ")


def test_a_server_that_cannot_start_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    with (
        played_by(tmp_path, {"app": "guessing:missing"}, workers=1) as player,
        pytest.raises(
            PluginError,
            match=r"the server ended with exit code \d before it answered: .*[Aa]ttribute .missing. .*3 processes in a row",
        ),
    ):
        played(player, *rows(4))


def test_a_parser_that_does_not_exist_is_named(tmp_path: Path) -> None:
    said = "action = 'guessing:nothing': module 'guessing' has no attribute 'nothing'"
    options = {"app": "guessing:app", "action": "guessing:nothing"}
    with played_by(tmp_path, options, workers=1) as player, pytest.raises(PluginError, match=said):
        played(player, *rows(4))


def test_nothing_is_left_of_a_process_that_is_killed(tmp_path: Path) -> None:
    with played_by(tmp_path, {"app": "guessing:app"}, workers=1) as player:
        played(player, {})
        (server,) = servers()
        (worker,) = [one for one in descendants() if "rlcore_gateway.host" in words_of(one)]
        worker.send_signal(signal.SIGKILL)
        psutil.wait_procs([server], timeout=20)
        assert not server.is_running()


def test_the_record_of_the_capture_server_is_the_ledger(tmp_path: Path) -> None:
    with played_by(tmp_path, {"interface": "agent", "agent": "guessing:agent", "app": "guessing:app"}) as player:
        episodes = played(player, *rows(8))
    assert outcomes(episodes) == ["ok"] * 8
    assert_ledger_is_the_engines(player, episodes)
    for rollout, _ in episodes:
        trained = sum(int(one.policy_mask.sum()) for one in rollout.segments)
        assert (rollout.extra["trace_tokens"], rollout.extra["trace_turns"]) == (trained, rollout.extra["calls"])


def test_a_command_serves_in_a_python_of_its_own(tmp_path: Path) -> None:
    command = ("python", "-m", "uvicorn", "guessing:app", "--port", "{port}", "--log-level", "warning")
    with played_by(tmp_path, {"command": command, "python": ENVIRONMENT, "prompt": "json", "messages": "environment"}, workers=1) as player:
        ((rollout, _),) = played(player, {})
    assert rollout.extra["outcome"] == "ok"
    assert rollout.turns[0].content == '{"hint": "guess a digit"}'


CALL = '{"name": "calculator", "arguments": {"expression": "3*4"}}'
LETTERS = "".join(dict.fromkeys(TOKENS + CALL))


TOOL_USE = {"tokens": LETTERS, "tool_parser": "json", "max_call_tokens": 0, "workers": 1}
SESSION = {"interface": "session", "factory": "guessing:CalculatorSessions", "prompt": "json", "action": "json"}


def test_the_tools_of_a_server_are_tools_of_the_chat(tmp_path: Path) -> None:
    with played_by(tmp_path, {"interface": "tools", "app": "guessing:tools"}, **TOOL_USE) as player:
        player.answering([CALL, CALL.replace("3*4", "cat"), "12"])
        ((rollout, score),) = played(player, {}, max_new_tokens=1000)
    first, second = (turn.content for turn in rollout.turns if turn.role == "tool")
    assert first == "12"
    assert "Error" in second
    assert (rollout.extra["outcome"], rollout.extra["tool_calls"], rollout.text) == ("ok", 2, "12")
    assert (rollout.extra["reward"], score.value) == (None, None)


@pytest.mark.parametrize(
    ("task", "answers", "outcome", "reward"),
    [
        ({}, [CALL, "12"], "ok", 1.0),
        ({}, ["13"], "ok", 0.0),
        ({"unscored": True}, [CALL, "12"], "ok", None),
        ({"gone": True}, [CALL], "environment", None),
        ({"exits": True}, [CALL], "environment", None),
    ],
)
def test_the_tools_of_a_resource_session_and_its_verification(
    tmp_path: Path, task: dict[str, Any], answers: list[str], outcome: str, reward: float | None
) -> None:
    with played_by(tmp_path, SESSION, **TOOL_USE) as player:
        player.answering(answers)
        ((rollout, score),) = played(player, {"task": {"question": "3*4", "answer": "12", **task}})
    assert (rollout.extra["outcome"], rollout.extra.get("reward")) == (outcome, reward)
    if outcome == "environment":
        assert score.reason.startswith(f"InfrastructureError: tool calculator failed: {'SystemExit: 3' if 'exits' in task else 'OSError'}")
