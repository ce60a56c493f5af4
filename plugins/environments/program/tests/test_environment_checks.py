"""What is wrong with an environment's Python or rows is reported by a dry run, as by the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.testing import RunTester

PLUGIN = """
from rlcore.api import EnvironmentSpec, hookimpl

rlcore_api = "2.0"

@hookimpl
def rlcore_register_environments():
    target = "rlcore_plugin_acme.game:Game"
    return [
        EnvironmentSpec(name="acme", target=target, summary="A game.", environment={environment!r}),
        EnvironmentSpec(name="here", target=target, summary="The same game, in the Python of the run."),
    ]
"""
GAME = """
from rlcore.api import DataError
from rlcore.api.environments import Environment

class Game(Environment):
    @classmethod
    def rows(cls, name):
        if name != "levels":
            raise DataError(f"there are no rows {name!r}; name levels")
        yield {"messages": [{"role": "user", "content": "a"}]}

    async def play(self, model, row):
        await model.chat(row["messages"], max_tokens=1)
        return 1.0
"""
UNMADE = "environment acme-game has not been made; type: rlcore env build acme-game"


def project(folder: Path, environment: str = "acme-game") -> RunTester:
    tester = RunTester(folder, in_process=True).with_fakes()
    lock = {"environments/acme-game.lock": "acme-part==1.0\n"}
    tester.plugins.install("acme", PLUGIN.format(environment=environment), files={"game.py": GAME, **lock})
    tester.fake_run()
    return tester


@pytest.fixture(autouse=True)
def _no_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_an_environment_that_was_not_built_is_refused_before_anything_starts(dry: list[str], tmp_path: Path) -> None:
    tester = project(tmp_path)
    words = ("run.toml", "--environment", "acme", "-rt", "environment")
    for rows in ((), ("-d", "env:acme:levels")):
        tester.run("train", *words, *rows, *dry).assert_refused(UNMADE)
        tester.run("eval", "model", *words, *(rows or ("-d", "data.jsonl")), *dry).assert_refused(UNMADE)
    tester.run("train", "run.toml", "-d", "env:acme:levels", *dry).assert_refused(UNMADE)


def test_an_environment_of_other_machines_is_not_looked_for_here(tmp_path: Path) -> None:
    words = ("run.toml", "--environment", "acme", "-rt", "environment", "--runtime", "ray", "--dry-run")
    project(tmp_path).run("train", *words).assert_ok()


def test_a_folder_without_a_python_is_refused_by_the_dry_run(tmp_path: Path) -> None:
    tester = project(tmp_path, str(tmp_path / "venv"))
    said = f"environment {tmp_path}/venv has no bin/python; make one: "
    tester.run("train", "run.toml", "--environment", "acme", "-rt", "environment", "--dry-run").assert_refused(said)


def test_a_misspelt_lock_is_reported_with_the_nearest(tmp_path: Path) -> None:
    tester = project(tmp_path, "acme-gam")
    said = f"there is no folder {tmp_path}/acme-gam, and 'acme-gam' is not an environment of an installed plugin; did you mean acme-game?"
    tester.run("train", "run.toml", "--environment", "acme", "-rt", "environment", "--dry-run").assert_refused(said)


@pytest.mark.parametrize("command", [("train",), ("eval", "model")])
def test_rows_that_do_not_exist_are_refused_by_the_dry_run(command: tuple[str, ...], tmp_path: Path) -> None:
    words = (*command, "run.toml", "--environment", "here", "-rt", "environment", "--dry-run", "-d")
    tester = project(tmp_path)
    tester.run(*words, "env:here:levels").assert_ok()
    tester.run(*words, "env:here:nonsense").assert_refused("env:here:nonsense: there are no rows 'nonsense'; name levels")
    tester.run(*words, "env:nowhere:levels").assert_refused("no installed plugin has an environment 'nowhere'")


def test_an_environment_in_a_file_has_rows(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.write("game.py", GAME)
    words = ("train", tester.fake_run(), "--environment", "./game.py:Game", "-rt", "environment", "-d")
    tester.run(*words, "env:./game.py:Game:levels", "--max-steps", "1", "-tbs", "1", "--workers", "1").assert_ok()
    for rows, said in {
        "./game.py:Game:nonsense": "there are no rows 'nonsense'; name levels",
        "./game.py:Gam:levels": "./game.py has no 'Gam', did you mean 'Game'",
        "./gone.py:Game:levels": "gone.py",
        "./game.py": "./file.py:NAME",
    }.items():
        tester.run(*words, f"env:{rows}", "--dry-run").assert_refused(f"env:{rows}: ", said)
