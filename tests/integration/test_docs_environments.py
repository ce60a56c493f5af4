"""docs/authors/environments.md is run: the packages that it prints, one with a stand-in for gymnasium, in the Python of the test."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester, write_fake_model

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "authors" / "environments.md").read_text(encoding="utf-8")


def files_of(distribution: str) -> dict[str, str]:
    """The files of a package of the page, by their paths."""
    return dict(re.findall(rf"<!-- test: {distribution}/(\S+) -->\n```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))


FILES, HANGMAN = files_of("rlcore-plugin-blackjack"), files_of("rlcore-plugin-hangman")
GYMNASIUM = """
class Game:
    def reset(self, seed):
        self.left = 2
        return (seed, 5, 0), {}

    def step(self, action):
        self.left -= 1
        return (12, 5, 0), 1.0 if self.left == 0 else 0.0, self.left == 0, False, {}

def make(name):
    assert name == "Blackjack-v1"
    return Game()
"""


def test_an_evaluation_with_the_package_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    inside = {path.partition("/")[2]: text for path, text in FILES.items() if path != "pyproject.toml"}
    module = inside["__init__.py"].replace('environment="blackjack", ', "")
    assert module != inside["__init__.py"]
    (tmp_path / "stand_in").mkdir()
    (tmp_path / "stand_in" / "gymnasium.py").write_text(GYMNASIUM)
    monkeypatch.syspath_prepend(tmp_path / "stand_in")
    tester.plugins.install("blackjack", module, files={"game.py": inside["game.py"]})
    model = str(write_fake_model(tester.folder / "cards", "".join(map(chr, range(32, 127)))))
    sampling = {"max_new_tokens": 64, "max_context_tokens": 512, "options": {"workers": 1, "max_call_tokens": 4}}
    config = tester.fake_run(model={"model": model}, sampling=sampling)
    words = ("-d", "env:blackjack:4", "--environment", "blackjack", "-rt", "environment", "--json")
    (told,) = tester.run("eval", model, config, *words).assert_ok().json["tasks"].values()
    assert told["episodes"] == {"ok": 4}
    assert [value for name, value in told["figures"].items() if name.endswith("conversation/unclear")] == [2.0]
    sys.modules.pop("gymnasium", None)


def test_a_package_without_a_lock(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    inside = {path.removeprefix("rlcore_plugin_hangman/"): text for path, text in HANGMAN.items()}
    tester.plugins.install("hangman", inside["__init__.py"], files={"game.py": inside["game.py"]})
    model = str(write_fake_model(tester.folder / "letters", "".join(map(chr, range(32, 127)))))
    sampling = {"max_new_tokens": 64, "max_context_tokens": 512, "options": {"workers": 1, "max_call_tokens": 1}}
    config = tester.fake_run(model={"model": model}, sampling=sampling)
    words = ("-d", "env:hangman:cat,house", "--environment", "hangman", "--wrong", "3", "-rt", "environment", "--json")
    (told,) = tester.run("eval", model, config, *words).assert_ok().json["tasks"].values()
    assert told["episodes"] == {"ok": 2}
    names: dict[str, Any] = {}
    exec(inside["tests/test_hangman.py"], names)
    with tester.plugins:
        names["TestHangman"]().test_each_script_ends_with_a_reward()
    assert tomllib.loads(HANGMAN["pyproject.toml"])["project"]["entry-points"]["rlcore"] == {"hangman": "rlcore_plugin_hangman"}


def test_the_lock_of_the_page_has_what_rlcore_imports() -> None:
    (words,) = re.findall(r"pip install gymnasium==\S+ (.*)", PAGE)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert words.split() == [re.split(r"[><=]", name)[0] for name in needed]


def test_the_package_of_the_page_is_whole() -> None:
    assert set(FILES) == {"pyproject.toml", "rlcore_plugin_blackjack/__init__.py", "rlcore_plugin_blackjack/game.py"}
    tomllib.loads(FILES["pyproject.toml"])
