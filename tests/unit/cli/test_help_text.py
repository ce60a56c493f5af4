"""The list of commands is kept, and made anew when what it was made of changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlcore.cli import help_text
from rlcore.testing import RunTester

HOOKS = """
from rlcore.api import CommandSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_commands():
    return [CommandSpec(name="greet", target="rlcore_plugin_greeter.command:Greet", summary="{summary}")]
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rlcore" / "help.json"


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path / "project")


def test_a_kept_list_is_printed_without_looking_for_plugins(cache: Path) -> None:
    code = (
        "import sys; from rlcore.cli import main; main(['--help']); print(sorted({'importlib.metadata', 'dataclasses'} & set(sys.modules)))"
    )
    first, second = (subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert first.splitlines()[-1] == "['dataclasses', 'importlib.metadata']"
    assert second.splitlines()[-1] == "[]"
    assert first.splitlines()[:-1] == second.splitlines()[:-1]
    assert [path.name for path in cache.parent.iterdir()] == ["help.json"]


def test_an_installed_a_changed_and_a_switched_plugin_make_it_anew(cache: Path, tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    def greets(**variables: str) -> list[str]:
        return [line.split(maxsplit=1)[1] for line in tester.run("--help", env=variables).lines if line.startswith("  greet")]

    assert greets() == []
    tester.plugins.install("greeter", HOOKS.format(summary="Says hello."))
    assert greets() == greets() == ["Says hello."]
    tester.plugins.install("greeter", HOOKS.format(summary="Waves."))
    assert greets() == ["Waves."]
    assert greets(RLCORE_DISABLE="greeter") == []
    assert greets(RLCORE_PLUGINS="greeter") == ["Waves."]
    assert greets() == ["Waves."]


def test_a_change_of_a_package_that_a_plugin_imports_makes_it_anew(cache: Path, tester: RunTester) -> None:
    tester.plugins.install("greeter", "import shared_words\n" + HOOKS.replace('"{summary}"', "shared_words.SAYS"))
    words = tester.plugins.root / "shared_words.py"
    for says in ("Says hello.", "Waves to all."):
        words.write_text(f"SAYS = {says!r}\n", encoding="utf-8")
        assert any(says in line for line in tester.run("--help").lines)


def test_with_a_broken_plugin_none_is_kept(cache: Path, tester: RunTester) -> None:
    tester.plugins.install("greeter", "1 / 0")
    assert "Installed but broken: rlcore-plugin-greeter" in tester.run("--help").stdout
    assert not cache.exists()


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"made_of": [], "text": "x"}', '{"made_of": [[]], "text": "x"}', "\0", "[" * 100_000])
def test_a_damaged_one_is_made_anew(damage: str, cache: Path) -> None:
    text = help_text.help_text()
    whole = json.loads(cache.read_text())
    cache.write_text(damage)
    assert help_text.help_text() == text
    assert json.loads(cache.read_text())["text"] == whole["text"]


@pytest.mark.parametrize("where", ["a file", "no home"])
def test_where_none_can_be_kept_it_is_printed(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    if where == "a file":
        (tmp_path / "home").touch()
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
    before = sorted(tmp_path.iterdir())
    assert "usage: rlcore" in help_text.help_text()
    assert sorted(tmp_path.iterdir()) == before
