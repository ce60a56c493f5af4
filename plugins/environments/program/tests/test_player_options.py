"""The table of players: what is refused before anything starts, and what the plan says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore_plugin_agents.player_options import PlayerOptions

from rlcore.testing import RunTester
from tests.letters_model import write_model
from tests.made_once import made_once

GAME = "async def play(model, row):\n    return 1.0\n"
THERE = "http://127.0.0.1:1/v1"


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write("game.py", GAME)
    return made


@pytest.fixture(scope="session")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once("frozen-letters", write_model, tmp_path_factory)


def planned(tester: RunTester, players: dict[str, Any], **sampling: Any) -> Any:
    own = {"environment": "./game.py:play", "max_new_tokens": 8, "max_context_tokens": 64, "options": {"players": players}}
    written = tester.fake_run(sampling={**own, **sampling}, run={"num_episodes": 1, "max_steps": 2})
    return tester.run("train", written, "-rt", "environment", "--dry-run", "--json")


@pytest.mark.parametrize(
    ("players", "words"),
    [
        (
            {"white": {}, "black": {"model": "nowhere/at/all"}},
            "/nowhere/at/all does not exist (paths start where you typed rlcore); name",
        ),
        ({"white": {}, "black": {"model": "."}}, "has neither a model (config.json) nor a checkpoint"),
        ({"white": {}, "black": {"base_url": THERE}}, "players.black.base_url is the address of another model, and model is the policy"),
        ({"white": {}, "black": {"base_url": "127.0.0.1", "model": "x"}}, "must begin with http:// or https:// and end in /v1"),
        ({"white": {}, "black": {"base_url": "http://h/v1", "model": "x", "key_variable": "NO_SUCH"}}, "type export NO_SUCH=KEY"),
        ({"white": {"key_variable": "HOME"}}, 'players.white.key_variable = "HOME" belongs to an endpoint; write base_url too'),
        (
            {"white": {"temperature": 0.5}},
            "players.white.temperature is only for a frozen model; the policy is served and sampled",
        ),
        ({"white": {}, "black": {"base_url": THERE, "model": "x", "dtype": "bfloat16"}}, "its server decides that; leave it out"),
        (
            {"white": {}, "black": {"base_url": THERE, "model": "x", "backend": "transformers"}},
            "players.black.backend is only for a frozen model; its server decides that",
        ),
        ({"white": {}, "black": {"model": "x/y", "temperature": -1.0}}, "must be a finite number of at least 0, or none"),
        ({"white": {}, "black": {"model": "x/y", "top_p": 2.0}}, "must be a finite number above 0 and of at most 1, or none"),
        ({"black": {"base_url": THERE, "model": "x"}}, 'no player is the policy, so nothing would train; write model = "policy"'),
        ({"white": {}, "White": {}}, "the names white and White differ only in upper and lower case"),
        ({"white player": {}}, 'the name "white player" may have letters, digits, _ and -'),
        ({"white": {"modle": "x"}}, "players.white.modle is not a setting of [sampling.options.players.white]"),
        ({"white": {"model": ""}}, 'sampling.options.players.white.model = ""'),
    ],
)
def test_a_table_that_cannot_work_is_refused(tester: RunTester, players: dict[str, Any], words: str) -> None:
    planned(tester, players).assert_refused(words)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"backend": "no_such"}, "players.black.backend: there is no inference backend 'no_such'"),
        ({"backend_options": {"no_such": 1}}, "players.black.backend_options.no_such is not an option of inference backend transformers"),
        ({"backend_options": {"threads": "x"}}, 'players.black.backend_options.threads = "x" (inference backend transformers of'),
        ({"backend": "endpoint"}, "players.black.backend_options has no addresses"),
        ({"device": "gpu"}, "players.black: device = gpu: inference backend transformers does not offer it; type device = auto or cpu"),
        ({"backend": "fake"}, ""),
    ],
)
def test_the_engine_of_a_frozen_model_is_checked(tester: RunTester, letters: Path, engine: dict[str, Any], words: str) -> None:
    done = planned(tester, {"white": {}, "black": {"model": str(letters), **engine}})
    if words:
        done.assert_refused(words)
        assert "Python" not in done.stderr
    else:
        done.assert_ok()


def test_the_plan_says_what_a_frozen_model_costs(tester: RunTester, letters: Path) -> None:
    players = {"white": {}, "black": {"model": str(letters), "dtype": "bfloat16"}, "red": {"base_url": THERE, "model": "x"}}
    notes = [note for note in planned(tester, players).assert_ok().json["notes"] if "player " in note]
    note, other = notes
    assert other.endswith(f"player red is the model x at {THERE}; it never trains, and no seed of the run reaches it")
    assert f": player black is a second model in the memory of the producer: {letters} (" in note
    assert note.endswith("GiB of weights), with backend transformers in bfloat16 on device auto; it never trains")
    assert not [note for note in planned(tester, {}).assert_ok().json["notes"] if "player " in note]


def test_a_checkpoint_and_a_run_name_the_model_in_them(tmp_path: Path, letters: Path) -> None:
    run = tmp_path / "runs" / "project" / "20260131-120000-ab12cd"
    for step in (2, 10):
        folder = run / "checkpoints" / f"step-{step}"
        (folder / "model").mkdir(parents=True)
        (folder / "checkpoint.json").write_text("{}")
        (folder / "model" / "config.json").write_text("{}")
    (run / "run.toml").write_text("")
    (run / "manifest.json").write_text(json.dumps({}))
    newest = str(run / "checkpoints" / "step-10" / "model")
    for place, model in ((run, newest), (run / "checkpoints" / "step-2", newest.replace("step-10", "step-2")), (letters, str(letters))):
        assert PlayerOptions(model=str(place)).model == model
    assert PlayerOptions(model="policy").model == "policy"
    assert PlayerOptions(model="org/name").kind == "frozen"
    assert PlayerOptions(base_url=THERE, model=str(run)).model == str(run)  # the name of a model there


def test_a_table_that_is_written_back_says_what_the_user_gave() -> None:
    for given in ({}, {"base_url": THERE, "model": "x"}, {"model": "org/name", "top_p": 0.5}):
        once = PlayerOptions.model_validate(given)
        again = PlayerOptions.model_validate(once.model_dump(mode="json"))
        assert again == once
        assert again.kind == "frozen" or not again.model_fields_set & {"backend", "backend_options", "dtype", "device", "top_p"}


def test_numbers_out_of_range_are_refused() -> None:
    for values in ({"temperature": -1.0}, {"top_p": 0.0}, {"top_p": float("nan")}):
        with pytest.raises(ValidationError):
            PlayerOptions.model_validate({"model": "x", **values})
