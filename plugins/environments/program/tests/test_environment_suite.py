"""The kit's suite accepts sound environments, and each of its rules catches a planted bug."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore_gateway.link import LinkedEpisode
from rlcore_gateway.links import GatewayLinks

from rlcore.testing import EnvironmentSuite

DIGIT = """
from rlcore.api.environments import TurnEnvironment

class Game(TurnEnvironment):
    deterministic = True

    def reset(self, row):
        self.answer = row["gt_answer"]
        return row["messages"]

    def step(self, answer):
        guess = answer["content"].strip()
        hint = "higher" if guess < self.answer else "lower"
        return hint, float(guess == self.answer), guess == self.answer
"""
PROGRAM = """
import json, sys, urllib.error, urllib.request

for line in sys.stdin:
    said = json.loads(line)
    if "cancel" in said:
        continue
    body = json.dumps({"messages": said["row"]["messages"]}).encode()
    headers = {"Authorization": "Bearer " + said["key"], "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(said["base_url"] + "/chat/completions", body, headers)) as answer:
            text = json.load(answer)["choices"][0]["message"]["content"]
        print(json.dumps({"episode": said["episode"], "reward": float(text == "a")}), flush=True)
    except urllib.error.HTTPError as error:
        print(json.dumps({"episode": said["episode"], "outcome": "crashed", "reason": str(error)}), flush=True)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Writes the source of an environment, and returns its name."""

    def write(source: str) -> str:
        path = tmp_path_factory.mktemp("environments") / "game.py"
        path.write_text(source)
        return f"{path}:{'Game' if 'class Game' in source else 'play'}"

    return write


class Sound(EnvironmentSuite):
    """A suite of an environment that is written to a file."""

    source = ""

    @pytest.fixture(autouse=True)
    def _write(self, written: Callable[[str], str]) -> None:
        self.environment = self.environment or written(self.source)


class TestDigit(Sound):
    source = DIGIT
    rows = ({"gt_answer": "7"}, {"gt_answer": "3"})
    scripts = (("5", "9", "7"), ("3",), ("8", "3", "7"))
    rewards = (1.0, 0.0, 1.0, 0.0, 1.0, 1.0)


class TestProgram(EnvironmentSuite):
    environment = "program"
    rewards = (1.0, 0.0)

    @pytest.fixture(autouse=True)
    def _write(self, tmp_path: Path) -> None:
        path = tmp_path / "game.py"
        path.write_text(PROGRAM)
        self.options = {"command": f"python {path}"}


def test_a_call_that_is_there_when_an_episode_begins_is_answered(written: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that begins an episode may be slower than the episode."""
    real = GatewayLinks.open_episode

    def slow(*words: Any) -> LinkedEpisode:
        episode = real(*words)
        while not episode._news:
            threading.Event().wait(0.01)
        return episode

    monkeypatch.setattr(GatewayLinks, "open_episode", slow)
    suite = TestDigit()
    suite.environment = written(DIGIT)
    with suite.table(workers=1) as table:
        (talk,) = table.finish([table.begin({"gt_answer": "7"}, ("5", "7"))], 30.0)
    assert talk.extra["outcome"] == "ok"


# --- bugs --------------------------------------------------------------------------------------------------------------

NO_REWARD = DIGIT.replace("float(guess == self.answer)", "None")
KEEPS_THE_BOARD = (
    DIGIT.replace("    deterministic = True", "    turns = 0")
    .replace("        guess =", "        Game.turns += 1\n        guess =")
    .replace("float(guess == self.answer)", "float(Game.turns)")
)
FIRST_KEY = """
models = []

async def play(model, row):
    models.append(model)
    answer = await models[0].chat(row["messages"])
    return float(answer["content"] == row["gt_answer"])

play.episodes_per_process = 4
"""
NUMBERS_ONLY = """
async def play(model, row):
    answer = await model.chat(row["messages"])
    return float(int(answer["content"]) == int(row["gt_answer"]))
"""
ASKS_AGAIN = """
async def play(model, row):
    while True:
        try:
            answer = await model.chat(row["messages"])
        except Exception:
            continue
        if answer["content"] == row["gt_answer"]:
            return 1.0
"""
DEAF = """
import time

async def play(model, row):
    try:
        answer = await model.chat(row["messages"])
    except BaseException:
        time.sleep(60)
    return float(answer["content"] == row["gt_answer"])
"""
MEMORY = """
from multiprocessing import resource_tracker, shared_memory

blocks = []

async def play(model, row):
    blocks.append(shared_memory.SharedMemory(create=True, size=4096))
    resource_tracker.unregister(blocks[-1]._name, "shared_memory")
    answer = await model.chat(row["messages"])
    return float(answer["content"] == row["gt_answer"])
"""
ONCE = """
from pathlib import Path

async def play(model, row):
    mark = Path(row["folder"]) / "played"
    first = not mark.exists()
    mark.touch()
    answer = await model.chat(row["messages"])
    return float(first)
"""


class Wrong(EnvironmentSuite):
    """The suite of an environment with a bug."""

    scripts = (("7",), ("8",))
    seconds = 6.0


RULES = {
    "each_script_ends_with_a_reward": ("reset or step|step returned", NO_REWARD),
    "an_episode_depends_on_its_row_and_its_answers_alone": ("alone, the episode is", KEEPS_THE_BOARD),
    "any_answer_will_do": ("'': it ended as crashed: ValueError", NUMBERS_ONLY),
    "a_budget_that_is_used_up_ends_the_episode": ("a used-up budget ended an episode as timeout", ASKS_AGAIN),
    "a_cancelled_episode_ends_by_itself_and_the_process_plays_on": ("did not end a cancelled episode", DEAF),
    "an_episode_whose_process_dies_is_played_again_as_if_it_had_not_begun": ("played again, its reward is 0.0", ONCE),
}
MORE = {
    "a key of another episode": (
        "each_script_ends_with_a_reward",
        "never asked the policy|the episode of this API key has ended",
        FIRST_KEY,
    ),
    "shared memory": ("each_script_ends_with_a_reward", "the environment left shared memory", MEMORY),
}


@pytest.mark.parametrize(
    ("rule", "message", "source"), [*((rule, *bug) for rule, bug in RULES.items()), *MORE.values()], ids=[*RULES, *MORE]
)
def test_a_rule_catches_a_bug(rule: str, message: str, source: str, written: Callable[[str], str], tmp_path: Path) -> None:
    suite: Any = Wrong()
    suite.environment = written(source)
    suite.rows = ({"gt_answer": "7", "folder": str(tmp_path)},)
    suite.rewards = (1.0, 1.0) if source is ONCE else None
    with pytest.raises(AssertionError, match=message):
        getattr(suite, f"test_{rule}")()


def test_each_rule_has_a_bug() -> None:
    assert set(RULES) == {name.removeprefix("test_") for name in dir(EnvironmentSuite) if name.startswith("test_")}
