"""What textarena's plugin declares and refuses before a game is played. No game is imported."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore_plugin_textarena import rlcore_check_run, rlcore_register_environments
from rlcore_plugin_textarena.options import TextArenaOptions
from rlcore_plugin_textarena.row_names import RowName

from rlcore.api import DataError, UsageError
from rlcore.api.commands import RunConfig
from rlcore.api.data import read_rows
from rlcore.testing import Registry


def test_the_declaration_imports_no_game() -> None:
    (spec,) = rlcore_register_environments()
    assert (spec.name, spec.environment, spec.episodes_per_process, spec.deterministic) == ("textarena", "textarena", 1, True)
    assert "textarena" not in sys.modules


def test_a_name_of_rows() -> None:
    assert RowName.parsed("Nim-v0") == RowName("Nim-v0", 100, 0, 0, {})
    name = "GuessTheNumber-v0?count=8&seed=3&players=1&max_number=9&mode=hard"
    assert RowName.parsed(name) == RowName("GuessTheNumber-v0", 8, 3, 1, {"max_number": 9, "mode": "hard"})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "name a game, for example env:textarena:GuessTheNumber-v0"),
        ("?count=3", "name a game"),
        ("Nim-v0?count=0", "count = 0 of Nim-v0"),
        ("Nim-v0?count=true", "count = True"),
        ("Nim-v0?seed=x", "seed = x"),
        ("Nim-v0?players=-1", "players = -1"),
    ],
)
def test_names_that_are_refused(name: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        RowName.parsed(name)


@pytest.mark.parametrize("options", [{"players": ["x", "x"]}, {"max_tokens": 0}, {"player": ["x"]}])
def test_options_that_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TextArenaOptions(**options)


def test_a_player_who_is_none_of_the_run_is_told_before_it_starts() -> None:
    def problems(environment: str, given: list[str], players: Any, **others: Any) -> list[str]:
        options = {"players": players, **others} if players is not None else others
        return rlcore_check_run(
            SimpleNamespace(
                sampling=SimpleNamespace(environment=environment, environment_options={"players": given} if given else {}, options=options)
            )
        )

    assert problems("textarena", ["x", "o"], {"x": {}, "o": {}}) == []
    assert problems("textarena", [], None) == []
    assert problems("./other.py:Game", ["x"], None) == []
    (problem,) = problems("textarena", ["x", "y"], {"x": {}, "o": {}})
    assert "there is no player 'y', the run has x, o" in problem
    (problem,) = problems("textarena", [], None, episodes_per_process=4)
    assert "process, which plays one" in problem
    assert "the run has none" in problems("TextArena", ["x"], None)[0]


@pytest.mark.parametrize(
    ("columns", "options", "run", "says"),
    [
        ({"game": "TicTacToe-v0", "players": 2}, {}, {}, "eval/t: TicTacToe-v0 is played by 2, and the run has no players; name 2 in"),
        ({"game": "Nim-v0", "players": 3}, {"players": ["a", "b"]}, {}, "is played by 3, and the run has a, b; name 3 in"),
        ({"game": "Hanoi-v0", "players": 1}, {}, {"a": {}, "b": {}}, "is played by 1, and the run has a, b; leave the players out"),
        ({"game": "TicTacToe-v0", "players": 2}, {}, {"a": {}, "b": {}}, ""),
        ({"game": "Hanoi-v0", "players": 1}, {}, {}, ""),
        ({"game": "TicTacToe-v0"}, {}, {}, ""),
    ],
)
def test_rows_for_another_number_of_players_are_refused(columns: Any, options: Any, run: Any, says: str) -> None:
    config: Any = RunConfig(sampling={"environment": "TextArena", "environment_options": options, "options": {"players": run}})
    prompts = {"eval/t": [SimpleNamespace(columns=columns)]}
    if not says:
        assert Registry.discover().check_run(config, "rlcore_note_data", data=prompts) == []
        return
    with pytest.raises(DataError, match=says.replace("[", ".")):
        Registry.discover().check_run(config, "rlcore_note_data", data=prompts)


def test_without_its_environment_it_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="rlcore env build textarena"):
        list(read_rows("env:textarena:TicTacToe-v0?count=1", Registry.discover()))
