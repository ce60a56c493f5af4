"""Games of the real textarena: scripts play the policy, the gateway and the processes are real."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_workers.environments import Interpreters

from rlcore.api import DataError
from rlcore.api.data import read_rows
from rlcore.testing import EnvironmentSuite, Registry, RunTester
from rlcore.testing.conversations.environment_suite import _playing

if not os.environ.get("RLCORE_TEST_TEXTARENA"):
    pytest.skip("needs the environment of textarena, named in RLCORE_TEST_TEXTARENA: rlcore env build textarena", allow_module_level=True)

SEEDS = (11, 12)


def guess_row(seed: int) -> dict[str, Any]:
    return {"game": "GuessTheNumber-v0", "seed": seed, "players": 1, "options": {"max_number": 9}}


@cache
def wanted(seed: int) -> int:
    """The number of a seed: textarena draws it from Python's generator."""
    return random.Random(seed).randint(1, 9)


def other(seed: int) -> int:
    return 1 if wanted(seed) > 1 else 2


class TestGuessing(EnvironmentSuite):
    """One number, as the environment draws it: the third script is right, the others make two invalid moves in a row. The second one thinks
    of the right number, as a model does whose chat template opens its thoughts."""

    environment = "textarena"
    rows = (guess_row(SEEDS[0]),)
    scripts = (
        ("no", "no"),
        (f"[{wanted(SEEDS[0])}]?</think>[{other(SEEDS[0])}]", "[77]"),
        (f"<think>[9]?</think>{other(SEEDS[0])}", f" {wanted(SEEDS[0])} "),
    )
    rewards = (0.0, 1 - abs(other(SEEDS[0]) - wanted(SEEDS[0])) / 8, 1.0)


def table(**options: Any) -> Any:
    suite = TestGuessing()
    return suite.table(workers=1, **options)


def rows(name: str) -> list[Any]:
    return [row for _, row in read_rows(f"env:textarena:{name}", Registry.discover())]


def test_rows_repeat_and_their_seeds_differ() -> None:
    once = rows("TicTacToe-v0?count=4&seed=1")
    assert once == rows("TicTacToe-v0?count=4&seed=1")
    assert len({row["seed"] for row in [*once, *rows("TicTacToe-v0?count=4&seed=2")]}) == 8
    assert [row["rotation"] for row in once] == [0, 1, 0, 1]
    assert {row["players"] for row in once} == {2}
    assert "Your goal is to win three in a row" in once[0]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("GuesTheNumber-v0", "has no game 'GuesTheNumber-v0'; the nearest: GuessTheNumber-v0"),
        ("TicTacToe-v0?players=3", "with 3 players here: AssertionError"),
        ("TwentyQuestions-v0", "OpenRouter API key not found"),
        ("Nim-v0?stones=3", "unexpected keyword argument 'stones'"),
    ],
)
def test_games_that_are_refused(name: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        rows(name)


DRAWS = """
import random
import numpy as np
import textarena as ta
from rlcore_plugin_textarena.game import _begun


class Draws(ta.Env):
    def __init__(self):
        self.drawn = [random.random(), np.random.random()]

    def reset(self, num_players, seed=None):
        self.drawn += [random.random(), np.random.random()]

    def step(self, action):
        raise NotImplementedError


ta.envs.registration.register("Draws-v0", Draws)
print(*({tuple(_begun("Draws-v0", {}, 1, seed).drawn) for seed in (5, 5, 6)}), sep=chr(10))
"""


ENDS = """
import sys
import textarena as ta
from rlcore_plugin_textarena import game


class Ends(ta.Env):
    env_id = "Ends-v0"
    reset = get_observation = step = lambda *given, **named: sys.exit(3)


ta.envs.registration.register("Ends-v0", Ends)
for ends in (lambda: game._begun("Ends-v0", {}, 1, 5), lambda: game._observed(Ends()), lambda: game._stepped(Ends(), "x")):
    try:
        ends()
    except Exception as error:
        print(type(error).__name__, error)
"""


def in_its_python(source: str) -> list[str]:
    """Run a program in the environment of textarena; return what it printed."""
    with closing(Interpreters()) as interpreters:
        python, variables = interpreters.of(Path(os.environ["RLCORE_TEST_TEXTARENA"]))
        done = subprocess.run([python, "-P", "-c", source], env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_game_that_calls_sys_exit_failed() -> None:
    begun, *failed = in_its_python(ENDS)
    assert begun.startswith("DataError textarena")
    assert begun.endswith("SystemExit: 3")
    assert failed == [
        "InfrastructureError Ends-v0: the game failed: SystemExit: 3",
        "InfrastructureError Ends-v0: the game failed at the move 'x': SystemExit: 3",
    ]


def test_what_a_game_draws_when_it_is_made_is_decided_by_the_seed() -> None:
    """Such as SpellingBee and IteratedStagHunt do, which need words from the network and Python 3.12."""
    assert len(in_its_python(DRAWS)) == 2


def played(row: dict[str, Any], script: Sequence[str], **options: Any) -> Any:
    with table(**options) as one:
        (talk,) = one.finish([one.begin(row, script)], 120.0)
    return talk


def contents(talk: Any, role: str) -> list[str]:
    return [message.content for message in talk.messages if message.role == role]


TIC = {"game": "TicTacToe-v0", "seed": 5, "players": 2}
PAIR: dict[str, Any] = {"players": {"left": {}, "right": {}}}


@pytest.mark.parametrize(
    ("rotation", "script", "rewards"),
    [
        (0, ("4", "0", "[3]", "1", "5"), {"left": 1.0, "right": -1.0}),
        (1, ("4", "0", "[3]", "1", "5"), {"left": -1.0, "right": 1.0}),
        (0, ("4", "4", "4"), {"left": 1.0, "right": -1.0}),
        (0, ("0", "1", "2", "4", "3", "5", "7", "6", "8"), {"left": 0.0, "right": 0.0}),
    ],
    ids=["wins", "begins second", "two invalid moves lose", "draw"],
)
def test_two_players_have_chats_and_rewards_of_their_own(rotation: int, script: Sequence[str], rewards: dict[str, float]) -> None:
    talk = played({**TIC, "rotation": rotation}, script, **PAIR)
    assert talk.extra["outcome"] == "ok", talk.extra["reason"]
    assert {name: talk.extra[f"reward_{name}"] for name in rewards} == rewards
    assert talk.extra["invalid_end"] == float(len(script) == 3)
    assert talk.extra["game_turns"] == len(script)


@pytest.mark.parametrize(
    ("game", "script", "reward"),
    [
        ("TowerOfHanoi-v0", ("A C", "A B", "C B", "A C", "B A", "B C", "A C"), 1.0),
        ("Mastermind-v0", ("1 2 3 4", "none", "none"), None),
    ],
)
def test_other_games(game: str, script: Sequence[str], reward: float | None) -> None:
    talk = played({"game": game, "seed": 3, "players": 1}, script)
    assert talk.extra["outcome"] == "ok", talk.extra["reason"]
    assert reward is None or talk.extra["reward"] == reward


@pytest.mark.parametrize(
    ("row", "options", "says"),
    [
        ({"seed": 1, "players": 1}, {}, "the row has no column 'game'"),
        (TIC, {}, "TicTacToe-v0 is played by 2, and the run has no players"),
        (guess_row(1), PAIR, "GuessTheNumber-v0 is played by 1, and the run has left, right"),
        ({"game": "Countdown-v0", "seed": 1, "players": 1}, {}, "ended with the rewards"),
        ({"game": "Hangman-v9", "seed": 1, "players": 1}, {}, "not found in registry"),
    ],
    ids=["no game", "no players", "too many", "a reward that is a text", "unknown"],
)
def test_what_is_not_the_policys_fault_has_no_reward(row: dict[str, Any], options: dict[str, Any], says: str) -> None:
    talk = played(row, ("x",), **options)
    assert (talk.extra["outcome"], talk.extra["reward"]) == ("environment", None)
    assert says in talk.extra["reason"]


def test_an_episode_whose_process_dies_twice_is_lost_and_masked() -> None:
    with table() as one:
        episode = one.begin(guess_row(1), (None, None, "no"))
        for asked in (1, 2):
            while len(episode.open) < asked:
                assert episode.active.said is None
                one.step([episode])
            for pid in _playing():
                os.kill(pid, signal.SIGKILL)
        (lost,) = one.finish([episode], 120.0)
    assert (lost.extra["outcome"], lost.extra["reward"]) == ("lost", None)
    assert lost.verdict is not None
    assert not lost.verdict.in_loss


def test_a_process_that_stops_is_ended_at_the_deadline_and_masked() -> None:
    with table(deadline=6.0, cancel_seconds=1.0) as one:
        one.finish([one.begin(guess_row(1), ("no",))], 120.0)
        episode = one.begin(guess_row(1), (None,))
        TestGuessing()._until_asked(one, episode)
        for pid in _playing():
            os.kill(pid, signal.SIGSTOP)
        (late,) = one.finish([episode], 60.0)
        (after,) = one.finish([one.begin(guess_row(1), ("no",))], 120.0)
    assert (late.extra["outcome"], late.extra["reward"]) == ("timeout", None)
    assert after.extra["outcome"] == "ok", "the next episode has a new process"


def test_a_game_of_two_without_players_is_refused_by_the_dry_run(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    words = (tester.fake_run(), "--environment", "textarena", "-rt", "environment", "-d", "env:textarena:TicTacToe-v0?count=2")
    says = "TicTacToe-v0 is played by 2, and the run has no players; name 2 in [sampling.options.players.NAME]"
    for dry in (("--dry-run",), ()):
        tester.run("train", *words, *dry).assert_refused(f"train: {says}")
    tester.run("eval", "model", *words, "--dry-run").assert_refused(f"eval/env:textarena:TicTacToe-v0?count=2: {says}")
