"""Rows of a data set of reasoning-gym, and its scores. On a stand-in for the package (``stand_in``)."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore_plugin_adapters import gym_reward, gym_rows, rlcore_note_run, rlcore_register_rewards
from rlcore_plugin_adapters.adapter_options import GymOptions
from rlcore_plugin_adapters.gym_reward import GymReward
from rlcore_plugin_adapters.gym_rows import EndlessGym, GymRows

from rlcore.api import DataError, Message, Outcome, Reward, RewardInput
from rlcore.api.data import Routes, parse_row
from rlcore.testing import DataSourceSuite, RewardSuite, RowGeneratorSuite

SPECS = {spec.name: spec for spec in rlcore_register_rewards()}
PATH = "gym:sums?size=3&seed=1&largest=50"


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(Path(__file__).with_name("stand_in"))
    for name in ("reasoning_gym", "reasoning_gym.factory"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in ("reasoning_gym", "reasoning_gym.factory"):
        sys.modules.pop(name, None)
    gym_rows._opened.cache_clear()
    gym_reward._dataset.cache_clear()
    gym_reward._entry.cache_clear()


def item(text: str) -> RewardInput:
    empty = {"question": None, "answer": None, "metadata": None}
    columns = {"reasoning_gym": {"dataset": "sums", "settings": {"size": 3, "seed": 1, "largest": 50}, "index": 2}, "gt_answer": "x"}
    return RewardInput(messages=(Message(role="user", content="?"),), columns=empty | columns, text=text)


def answer() -> str:
    return str(list(GymRows().rows(PATH))[2][1]["gt_answer"])  # type: ignore[index]


class TestReasoningGym(RewardSuite):
    spec = SPECS["reasoning_gym"]
    options = GymOptions()

    def make(self) -> Reward:
        return GymReward(self.options)

    def honest(self) -> RewardInput:
        return item(f"<think>a</think><answer>{answer()}</answer>")

    def wrong(self) -> RewardInput:
        return item("<answer>0</answer>")


class TestGymRows(DataSourceSuite):
    columns = ("gt_answer", "reasoning_gym")

    def make(self) -> GymRows:
        return GymRows()

    def path(self, folder: Path) -> str:
        return PATH

    def missing(self, folder: Path) -> str:
        return "gym:absent"

    def damaged(self, folder: Path) -> str:
        return "gym:sums?size=0"


class TestEndlessGym(RowGeneratorSuite):
    columns = ("gt_answer", "reasoning_gym")
    path = "gym-endless:sums?levels=3&seed=1"
    missing = "gym-endless:absent"

    def make(self) -> EndlessGym:
        return EndlessGym()


def test_levels_are_those_of_the_curriculum_and_the_reward_makes_the_same_entry() -> None:
    made = EndlessGym()
    path = "gym-endless:sums?levels=3&seed=1"
    assert (made.levels(path), made.levels("gym-endless:sums?largest=50")) == (3, 1)
    rows: list[Any] = [made.row(path, 70_000, level) for level in range(3)]
    assert [row["reasoning_gym"]["level"] for row in rows] == [0, 1, 2]
    terms = [Random("70001 0").randint(1, largest) for largest in (9, 99, 999)]
    assert [int(row["messages"][0]["content"].split()[0]) for row in rows] == terms
    for row in rows:
        asked = RewardInput(messages=(), columns=row, text=f"<answer>{row['gt_answer']}</answer>")
        assert GymReward().score(asked).value == 1.0
    plain: Any = made.row("gym-endless:sums?largest=50&seed=1", 2, 0)
    assert "level" not in plain["reasoning_gym"]
    assert plain["messages"] == list(GymRows().rows(PATH))[2][1]["messages"]  # type: ignore[index]


def test_words_that_stand_for_no_answer_elsewhere_are_answers() -> None:
    """Spelled backward, a word may be "nan". The reward reads the entry, and not ``gt_answer``."""
    rows: list[Any] = [EndlessGym().row("gym-endless:words", number, 0) for number in range(3)]
    routes = Routes((SPECS["reasoning_gym"],))
    prompts = [parse_row(row, index=0, default_id="a", source="a", routes=routes) for row in rows]
    assert [prompt.columns.get("gt_answer") for prompt in prompts] == ["nan", None, "none"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("gym-endless:", "name a data set of reasoning-gym, for example gym-endless:leg_counting"),
        ("gym-endless:sums?levels=4", "asks for 4 levels, and the data set has 3; type levels=3"),
        ("gym-endless:drawn?levels=2", "asks for 2 levels, and the data set has no curriculum"),
        ("gym-endless:sums?levels=0", "levels is 0, it must be a whole number from 1 on"),
        ("gym-endless:sums?levels=some", "levels is 'some'"),
        ("gym-endless:sums?big=1", "reasoning-gym refuses it"),
        ("gym-endless:word_ladder", "type PYTHONHASHSEED=0 before the command"),
    ],
)
def test_endless_paths_that_are_refused(path: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(DataError, match=f"^{re.escape(path)}: .*{re.escape(says)}"):
        EndlessGym().levels(path)


def test_rows_can_be_made_again() -> None:
    rows = list(GymRows().rows(PATH))
    assert [number for number, _ in rows] == [1, 2, 3]
    assert rows == list(GymRows().rows(PATH))
    assert rows != list(GymRows().rows(PATH.replace("seed=1", "seed=2")))
    _, row = rows[0]
    place = dict(row["reasoning_gym"])  # type: ignore[index]
    assert len(place.pop("digest")) == 16
    assert place == {"dataset": "sums", "settings": {"size": 3, "seed": 1, "largest": 50}, "index": 0}
    assert len(list(GymRows().rows("gym:sums"))) == 500


@pytest.mark.parametrize(
    ("path", "says"),
    [("gym:", "name a data set"), ("gym:other", "not registered"), ("gym:sums?size=0", "must be positive"), ("gym:sums?big=1", "big")],
)
def test_paths_that_are_refused(path: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        list(GymRows().rows(path))


def drawn(text: str, **other: str) -> RewardInput:
    """An answer to the second row of a data set that draws from the global generator."""
    row: Any = list(GymRows().rows("gym:drawn?size=3"))[1][1]
    text = text or f"<answer>{row['gt_answer']}</answer>"
    return RewardInput(messages=(), columns={**row, "reasoning_gym": {**row["reasoning_gym"], **other}}, text=text)


def test_a_data_set_that_draws_from_the_global_generator_makes_its_entries_again(capfd: pytest.CaptureFixture[str]) -> None:
    random.seed(7)
    asked, wanted = drawn(""), random.random()
    random.seed(8)
    assert GymReward().score(asked).value == 1.0
    random.seed(7)
    assert random.random() == wanted, "the generator of the run is as before"
    assert capfd.readouterr().out == "", "what the data set prints is no output of a command"


def test_another_entry_than_that_of_the_row_is_an_error_and_not_a_wrong_answer() -> None:
    with pytest.raises(DataError, match="made another entry here than for the rows"):
        GymReward().score(drawn("", digest="0" * 16))


def test_an_answer_that_the_data_set_cannot_read_is_wrong() -> None:
    score = GymReward().score(drawn("<answer>none</answer>"))
    assert (score.value, score.outcome) == (0.0, Outcome.WRONG)
    assert "cannot read this answer: ValueError" in score.reason


def test_an_error_of_the_data_set_itself_is_raised() -> None:
    columns = {"question": "?", "answer": "none", "metadata": {"source_dataset": "drawn"}}
    with pytest.raises(ValueError, match="invalid literal"):
        GymReward().score(RewardInput(messages=(), columns=columns, text="<answer>5</answer>"))


def test_entries_that_other_processes_would_not_make_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(DataError, match="type PYTHONHASHSEED=0 before the command"):
        list(GymRows().rows("gym:word_ladder?size=3"))
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert len(list(GymRows().rows("gym:word_ladder?size=3"))) == 3


def test_the_plan_names_data_sets_without_answers() -> None:
    paths = ("gym:rubiks_cube?size=4", "gym:sums", "rows.jsonl", "gym:game_of_life_halting")
    told = rlcore_note_run(SimpleNamespace(data_sets=[SimpleNamespace(path=path) for path in paths]))
    assert [note.partition(" so ")[0] for note in told] == [
        "gym:rubiks_cube: reasoning-gym has no answer to its questions,",
        "gym:game_of_life_halting: reasoning-gym gives 1 to every answer,",
    ]


def test_the_score_is_that_of_the_data_set() -> None:
    reward = GymReward(GymOptions(correct_score=2.0))
    part = reward.score(item(f"<answer>it is {answer()}</answer>"))
    assert (part.value, part.accuracy, part.outcome) == (1.0, 0.0, Outcome.WRONG)
    assert reward.score(item(answer())).outcome is Outcome.MALFORMED
    assert reward.score(item(f"<think><answer>{answer()}</answer></think>")).outcome is Outcome.MALFORMED


def test_entries_that_were_exported() -> None:
    reward = GymReward()
    columns = {"question": "1 + 1?", "answer": "2", "metadata": {"source_dataset": "sums"}}
    exported = RewardInput(messages=(), columns=columns, text="<answer>2</answer>")
    assert (reward.check(columns), reward.score(exported).value) == (None, 1.0)
    assert "not an entry of reasoning-gym" in str(reward.check({"answer": "2"}))
    assert "not registered" in str(GymReward(GymOptions(dataset="other")).check({"answer": "2"}))


def test_without_the_package_it_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not place.endswith("stand_in")])
    if "reasoning_gym" in sys.modules:
        monkeypatch.delitem(sys.modules, "reasoning_gym")
    with pytest.raises(DataError, match="pip install reasoning-gym"):
        GymReward().open()
