"""``check_command`` names the rule that a broken command breaks, and lets a sound one pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.api import CommandSpec
from rlcore.testing import RunTester, check_command

ENTRY = """
from rlcore.api import CommandSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_commands():
    return [CommandSpec(name="count", summary="Count words", target="rlcore_plugin_count.command:Count")]
"""
SPEC = CommandSpec(name="count", summary="Count words", target="rlcore_plugin_count.command:Count")
SOUND = """
import json
import sys
from rlcore.api.commands import Command


class Count(Command):
    def add_arguments(self, parser):
        parser.add_argument("words", nargs="*")
        parser.add_argument("--json", action="store_true")

    def run(self, args):
        count = len(args.words)
        print(json.dumps({"count": count}) if args.json else f"{count} words")
        return 0
"""
FLAG = "--no-such-flag-of-anybody"
FIRST = "        parser"
BROKEN = {
    "heavy": ((FIRST, f"        import pandas\n{FIRST}"), "must load nothing heavy, and loads pandas"),
    "any_flag": ((FIRST, f'        parser.add_argument("{FLAG}", nargs="?")\n{FIRST}'), "must refuse a wrong flag"),
    "own_error": ((FIRST, f"        parser.unknown = lambda flag: sys.exit('wrong')\n{FIRST}"), "must refuse a wrong flag"),
    "no_code": (("        return 0\n", ""), "must end with exit code 0"),
    "fails": (("        count =", "        [].pop()\n        count ="), "must end with exit code 0"),
    "two_objects": (("        return 0", "        print('done')\n        return 0"), "one JSON object as its last line"),
    "no_class": (("class Count(Command)", "class Count"), r"must be a class derived from rlcore\.api\.commands\.Command"),
    "usage": ((FIRST, f"        parser.usage = 'count [WORDS]'\n{FIRST}"), "must begin with its usage"),
}


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True)
    made.plugins.root.mkdir()
    (made.plugins.root / "pandas.py").touch()
    return made


def test_a_sound_command_passes(tester: RunTester) -> None:
    tester.plugins.install("count", ENTRY, files={"command.py": SOUND})
    check_command(SPEC, tester, "a", "b")


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_command_fails_by_its_rule(tester: RunTester, name: str) -> None:
    (old, new), rule = BROKEN[name]
    assert old in SOUND
    tester.plugins.install("count", ENTRY, files={"command.py": SOUND.replace(old, new, 1)})
    with pytest.raises(AssertionError, match=rule):
        check_command(SPEC, tester, "a", "b")


def test_a_command_that_is_not_listed_fails(tester: RunTester) -> None:
    tester.plugins.install("count", ENTRY.replace("Count words", "Something else"), files={"command.py": SOUND})
    with pytest.raises(AssertionError, match="must list count with its summary"):
        check_command(SPEC, tester)
