"""Episodes on resources servers of nemo-gym, in the environment that ``rlcore env build nemo-gym`` makes. Most answers are scripted, since
a fake engine calls no tool; the tiny model of the quickstart plays 32 episodes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from rlcore_plugin_nemo_gym.options import NemoGymOptions

from rlcore.testing import RunTester
from tests.quickstart_folder import quickstart_of

sys.path.insert(0, str(Path(__file__).parents[2] / "program" / "tests"))
from episode_player import TOKENS, EpisodePlayer, descendants, words_of

ENVIRONMENT = os.environ.get("RLCORE_TEST_NEMO", "")
pytestmark = [pytest.mark.skipif(not ENVIRONMENT, reason="RLCORE_TEST_NEMO names no environment"), pytest.mark.nightly]
COUNTER = "resources_servers.example_session_state_mgmt.app:StatefulCounterResourcesServer"
CALL = '{"name": "increment_counter", "arguments": {"count": 3}}'
BAD = '{"name": "increment_counter", "arguments": {"count": "x"}}'
CALCULATE = '{"name": "calculator", "arguments": {"expression": "6*7"}}'
LETTERS = "".join(dict.fromkeys(TOKENS + CALL + BAD + CALCULATE))
AUTHORED, CALCULATOR = Path(__file__).parent / "authored", "calculator:CalculatorServer"
CALCULATOR_TOOL = {
    "type": "function",
    "name": "calculator",
    "description": "Calculate a sum or a product.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
}
PATIENCE = 900.0
"""Seconds: the machine may be busy."""
TOOL = {
    "type": "function",
    "name": "increment_counter",
    "description": "",
    "strict": False,
    "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
}


def counted(expected: int) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "guess"}], "tools": [TOOL]},
        "initial_count": 2,
        "expected_count": expected,
    }


def played_by(place: Path, **options: Any) -> EpisodePlayer:
    made = NemoGymOptions(**{"server": COUNTER, "python": Path(ENVIRONMENT), "folder": place, **options})
    return EpisodePlayer(place, "nemo_gym", made, tokens=LETTERS, tool_parser="json", workers=1, episodes_per_process=1)


def servers() -> list[psutil.Process]:
    return [one for one in descendants() if "serve.py" in words_of(one)]


def test_tools_keep_the_state_of_their_session_and_verify_gives_the_reward(tmp_path: Path) -> None:
    with played_by(tmp_path) as player:
        player.answering([CALL, "done", CALL, CALL, "done", BAD, "done"] + [CALL, "done"] * 29)
        player.begin([counted(5)] * 32, max_new_tokens=1000)
        episodes = sorted(player.step_until(lambda: player.producer.idle, 300), key=lambda pair: int(pair[0].prompt_id[1:]))
    assert [rollout.extra["outcome"] for rollout, _ in episodes] == ["ok"] * 32
    assert [score.value for _, score in episodes] == [1.0, 0.0, 0.0] + [1.0] * 29
    assert [rollout.extra["tool_calls"] for rollout, _ in episodes][:3] == [1.0, 2.0, 1.0]
    assert all(len(rollout.segments) == 1 for rollout, _ in episodes)
    assert descendants() == []


def test_a_killed_server_loses_the_episode_which_is_played_once_more(tmp_path: Path) -> None:
    with played_by(tmp_path) as player:
        player.engine.held = True
        player.begin([counted(5)], max_new_tokens=1000)
        player.step_until(lambda: player.engine.open, 120)
        (server,) = servers()
        server.kill()
        player.step_until(lambda: len(player.engine.open) == 2, 120)
        player.engine.held = False
        player.answering([CALL, CALL, "done", "done"])
        ((rollout, _),) = player.step_until(lambda: player.producer.idle)
    assert rollout.extra["outcome"] == "ok"


def test_a_server_that_hangs_is_a_failure_of_the_environment_and_is_replaced(tmp_path: Path) -> None:
    with played_by(tmp_path, message_seconds=3.0) as player:
        player.engine.held = True
        player.begin([counted(5)], max_new_tokens=1000)
        player.step_until(lambda: player.engine.open, 120)
        servers()[0].suspend()
        player.answering([CALL, CALL, "done"])
        player.engine.held = False
        ((bad, score),) = player.step_until(lambda: player.producer.idle)
        player.begin([counted(5)], max_new_tokens=1000, first=1)
        ((good, _),) = player.step_until(lambda: player.producer.idle, 120)
    assert (bad.extra["outcome"], good.extra["outcome"]) == ("environment", "ok")
    assert score.reason.startswith("InfrastructureError: the server did not answer increment_counter within 3 s (message_seconds)")


# --- a server of the user's own, with a tool ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("crashes", "outcome"), [(1, "ok"), (2, "lost")])
def test_a_server_that_ends_by_itself_in_an_episode_loses_it_and_a_second_time_masks_it(tmp_path: Path, crashes: int, outcome: str) -> None:
    (left := tmp_path / "left").mkdir()
    config = {"crashes": crashes, "left": str(left)}
    with played_by(tmp_path, server=CALCULATOR, folder=AUTHORED, config=config) as player:
        player.answering([CALCULATE, CALCULATE, "42"])
        row = {"responses_create_params": {"input": [{"role": "user", "content": "guess"}], "tools": [CALCULATOR_TOOL]}, "gt_answer": "42"}
        player.begin([row], max_new_tokens=1000)
        ((rollout, score),) = player.step_until(lambda: player.producer.idle, 240)
    assert (rollout.extra["outcome"], rollout.extra["reward"]) == (outcome, 1.0 if outcome == "ok" else None)
    assert score.in_loss == (outcome == "ok")
    assert len(list(left.iterdir())) == crashes
    assert descendants() == []


def test_a_grader_that_calls_sys_exit_costs_its_own_episode_and_no_server(tmp_path: Path) -> None:
    with played_by(tmp_path, server=CALCULATOR, folder=AUTHORED) as player:
        player.answering(["42"] * 3)
        params = {"input": [{"role": "user", "content": "guess"}], "tools": [CALCULATOR_TOOL]}
        player.begin([{"responses_create_params": params, "gt_answer": answer} for answer in ("sys.exit", "42", "42")])
        episodes = player.step_until(lambda: player.producer.idle, 240)
    ends = {rollout.prompt_id: (rollout.extra["outcome"], score.reason) for rollout, score in episodes}
    assert [ends[name][0] for name in ("p0", "p1", "p2")] == ["environment", "ok", "ok"]
    assert ends["p0"][1].startswith("InfrastructureError: verify answered 500")


@pytest.mark.timeout(PATIENCE)
def test_32_episodes_of_a_tiny_model_that_calls_a_tool(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    made = quickstart_of("tools", tmp_path_factory)
    lines = (made / "heldout.jsonl").read_text().splitlines()[:8]
    with (tmp_path / "rows.jsonl").open("w") as file:
        for given in map(json.loads, lines):
            params = {"input": given["messages"]["content"], "tools": [CALCULATOR_TOOL]}
            file.write(json.dumps({"responses_create_params": params, "gt_answer": given["gt_answer"]}) + "\n")
    tester = RunTester(tmp_path)
    sections = {
        "sampling": {
            "environment": "nemo_gym",
            "environment_options": {"server": CALCULATOR, "folder": str(AUTHORED)},
            "max_new_tokens": 32,
            "options": {"workers": 1, "episodes_per_process": 4},
        },
        "data": {"system_prompt": "", "max_prompt_tokens": 64},
        "rewards": [{"name": "environment"}],
        "eval": {"eval_temperature": 1.0, "eval_samples": 4},
    }
    words = ("-d", f"env:nemo_gym:{tmp_path / 'rows.jsonl'}", "--out", str(tmp_path / "out.jsonl"), "--json")
    told = tester.run("eval", str(made / "base"), str(tester.write_toml("run.toml", sections)), *words, timeout=PATIENCE).assert_ok().json
    (task,) = told["tasks"].values()
    print(json.dumps(task))
    assert task["episodes"] == {"ok": 32}
    assert task["failed"] == 0
    figures = {name.removeprefix("eval/rows/"): value for name, value in task["figures"].items()}
    assert 0.1 < figures["reward"] < 0.9
    assert figures["conversation/tool_answers"] == figures["conversation/tool_calls"] > 0.1, "the server saw what the loop counts"
    assert figures["conversation/calls"] == 1.0 + figures["conversation/tool_calls"]
