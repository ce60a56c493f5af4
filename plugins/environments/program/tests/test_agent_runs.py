"""Whole runs whose rollouts are episodes."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from episode_player import descendants

from rlcore.testing import RunTester
from tests.levels import need

GAME = '''
from rlcore.api.environments import EpisodeResult


async def play(model, row):
    """The policy must write the letter of the row in each of two turns."""
    if row["gt_answer"] in BROKEN:
        return EpisodeResult(outcome="environment", reason="the board is broken")
    messages, rewards = list(row["messages"]), {}
    for _ in range(2):
        answer = await model.chat(messages, max_tokens=1)
        rewards[answer["id"]] = float(answer["content"] == row["gt_answer"]) / 2
        messages += [{"role": "assistant", "content": answer["content"]}, *row["messages"]]
    return EpisodeResult(reward=sum(rewards.values()), turn_rewards=rewards, extra={"games": 1})


play.episodes_per_process = 8
'''


GAME_WITH_OPTIONS = """
from pydantic import BaseModel, ConfigDict
from rlcore.api.environments import TurnEnvironment

class Game(TurnEnvironment):
    class Options(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")
        most: int = 3
    def reset(self, row): return row["messages"]
    def step(self, answer): return "", 1.0, True
"""


def command(options: dict[str, Any], **own: Any) -> dict[str, Any]:
    """The settings of a run with a command line agent."""
    return {"environment": "command", "environment_options": options, "options": own}


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write("game.py", GAME.replace("BROKEN", "''"))
    return made


def settings(tester: RunTester, options: dict[str, Any] | None = None, **sampling: Any) -> str:
    """Write a run of the game with fakes."""
    own = {"environment": "./game.py:play", "max_new_tokens": 8, "max_context_tokens": 64, "options": {"workers": 1, **(options or {})}}
    if options == {}:
        del own["options"]
    return tester.fake_run(sampling={**own, **sampling}, run={"num_episodes": 100, "max_steps": 30})


def test_a_policy_learns_from_episodes_that_are_played_in_another_process(tester: RunTester) -> None:
    done = tester.run("train", settings(tester), "-rt", "environment", "--learning-rate", "0.5", "--json").assert_ok()
    assert not descendants()
    folder = tester.folder / done.json["run"]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rewards = [row["reward/mean"] for row in rows]
    assert max(rewards[:3]) < 0.35
    assert sum(rewards[-6:]) / 6 > 0.7
    assert {row["turns/mean"] for row in rows} == {2.0}
    with gzip.open(folder / "rollouts" / "step-1.jsonl.gz", "rt") as file:
        rollout = json.loads(file.readline())
    assert [turn["policy"] for turn in rollout["turns"]] == [True, False, True]
    assert sum(rollout["turn_rewards"]) == rollout["reward"]


def test_a_run_whose_episodes_are_played_in_a_sandbox(tester: RunTester) -> None:
    need("namespaces")
    written = settings(tester, {"workers": 1, "sandbox": {"level": "namespaces"}})
    done = tester.run("train", written, "-rt", "environment", "--max-steps", "2", "--json").assert_ok()
    assert not descendants()
    manifest = json.loads((tester.folder / done.json["run"] / "manifest.json").read_text())
    assert ("sandbox", "local", "rlcore-plugin-sandbox") in {(one["kind"], one["name"], one["distribution"]) for one in manifest["plugins"]}
    rows = [json.loads(line) for line in (tester.folder / done.json["run"] / "metrics.jsonl").read_text().splitlines()]
    assert {row["conversation/episode_ok"] for row in rows} == {1.0}


def test_an_environment_that_fails_too_often_ends_the_run_with_one_sentence(tester: RunTester) -> None:
    tester.write("game.py", GAME.replace("BROKEN", "'abcdef'"))
    done = tester.run("train", settings(tester), "-rt", "environment")
    assert done.exit_code == 1
    assert "none of the first 8 episodes of environment ./game.py:play came to its end" in done.stderr
    assert "the board is broken; repair the environment or its agent" in done.stderr
    assert (
        done.stderr.count("an environment failed in an episode, and the episode does not train (the board is broken)")
        + done.stdout.count("an environment failed in an episode, and the episode does not train (the board is broken)")
        == 1
    )
    assert not descendants()


def test_an_agent_that_always_crashes_is_told_at_once_and_ends_the_run(tester: RunTester) -> None:
    tester.write("game.py", "async def play(model, row):\n    return row['nope']\n")
    done = tester.run("train", settings(tester), "-rt", "environment")
    assert done.exit_code == 1
    assert (
        "an agent crashed in its episode, and the episode does not train (KeyError: 'nope' (game.py, line 2))" in done.stdout + done.stderr
    )
    assert "none of the first 8 episodes" in done.stderr


def test_an_environment_that_cannot_be_made_ends_the_run_and_no_producer_is_lost(tester: RunTester) -> None:
    tester.write("game.py", GAME_WITH_OPTIONS)
    done = tester.run("train", settings(tester, environment="./game.py:Game"), "-rt", "environment", "--max-staleness", "1")
    assert done.exit_code == 2
    assert "Game() takes no arguments" in done.stderr
    assert "was lost" not in done.stderr


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"options": {"deadline": 3600.0}}, "raise --lease-deadline"),
        (
            {"options": {"gateways": 3, "workers": 2}},
            "gateways = 3: each needs a worker, and there are workers = 2",
        ),
        ({"environment": "none", "conversation": "agent"}, "type --environment"),
        ({"environment": "none", "options": {}}, "there is no environment that could give it"),
        ({"conversation": "fake", "options": {}}, "is never asked, because sampling.conversation is fake"),
        ({"environment": "program", "environment_options": {"command": "no_such_program x"}}, "there is no program 'no_such_program'"),
        ({"environment": "program", "environment_options": {"command": sys.executable, "cwd": "nowhere"}}, "there is no folder "),
        ({"environment": "program", "environment_options": {"command": "python", "python": "nowhere"}}, "nowhere has no bin/python"),
        ({"environment": "program", "environment_options": {}}, "command"),
        (command({"command": "no_such_program {prompt}", "grader": "true"}), "command: there is no program 'no_such_program'"),
        (command({"command": "cat {prompt}", "grader": "no_such_program"}), "grader: there is no program 'no_such_program'"),
        (command({"command": "cat {prompt}"}), "environment command gives no reward without a grader"),
        (command({"command": "cat"}), "the agent never receives its task"),
        (command({"command": "cat {prompt}", "grader": "true", "folder": "nowhere"}), "there is no folder "),
        (command({"command": [sys.executable, "{prompt}"], "grader": "true"}, sandbox={}), "sampling.options.sandbox.readable"),
        (command({"command": "cat {prompt}", "grader": "true"}, sandbox={}, episodes_per_process=2), "could read each other's files"),
        ({"options": {"history": "short"}}, "history"),
        ({"options": {"sandbox": {"level": "landlock"}}}, 'sampling.options.sandbox.level = "landlock" (conversation agent'),
        ({"options": {"sandbox": {"level": "none"}}}, "must be namespaces"),
        ({"options": {"sandbox": {"level": "remote"}}}, "must be namespaces"),
        ({"options": {"sandbox": {"memory": 1}}}, "sampling.options.sandbox.memory is not a setting of [sampling.options.sandbox]"),
        ({"options": {"sandbox": {"memory_mb": 1}}}, "must be a whole number of at least 64"),
        ({"options": {"sandbox": {"backend": "nowhere"}}}, "there is no sandbox 'nowhere' (installed: fake, local)"),
        ({"options": {"sandbox": {"backend_options": {"x": 1}}}}, "sampling.options.sandbox.backend_options.x is not a setting"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(tester: RunTester, sampling: dict[str, Any], words: str) -> None:
    tester.run("train", settings(tester, **sampling), "-rt", "environment", "--dry-run").assert_refused(words)


def test_a_command_line_agent_plays_the_episodes_of_a_run(tester: RunTester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = """
import json, os, sys, urllib.request
body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": sys.argv[1]}], "max_tokens": 1}).encode()
headers = {"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json"}
with urllib.request.urlopen(urllib.request.Request(os.environ["URL"] + "/chat/completions", body, headers)) as answer:
    print(json.load(answer)["choices"][0]["message"]["content"])
"""
    grader = "import json, sys; sys.exit(json.load(open(sys.argv[1]))['gt_answer'] not in open(sys.argv[2]).read())"
    options = {
        "command": [sys.executable, "-c", script, "{prompt}"],
        "env": {"KEY": "{key}", "URL": "{base_url}"},
        "grader": [sys.executable, "-c", grader, "{row}", "{output}"],
    }
    written = settings(tester, {"workers": 2}, environment="command", environment_options=options)
    done = tester.run("train", written, "-rt", "environment", "--max-steps", "2", "--json").assert_ok()
    assert not descendants()
    rows = [json.loads(line) for line in (tester.folder / done.json["run"] / "metrics.jsonl").read_text().splitlines()]
    assert {row["conversation/episode_ok"] for row in rows} == {1.0}


def test_a_function_of_other_arguments_is_refused(tester: RunTester) -> None:
    tester.write("game.py", "async def play(model):\n    return 1.0\n")
    tester.run("train", settings(tester), "-rt", "environment", "--dry-run").assert_refused("cannot be called as play(model, row)")


def test_the_plan_says_that_episodes_may_differ(tester: RunTester) -> None:
    done = tester.run("train", settings(tester), "-rt", "environment", "--dry-run", "--json").assert_ok()
    assert "seeded" in json.dumps(done.json["reproducible"])
