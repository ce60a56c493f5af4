"""Commands of plugins: listed, found, run, refused, and blamed for what they do wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcore import cli
from rlcore.cli.plugins import PluginsCommand
from rlcore.registry.install import install_line
from rlcore.testing import RunTester
from tests.commands import command_lines

ENTRY = """
from rlcore.api import CommandSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_commands():
    return [CommandSpec(name={name!r}, summary="A stranger's command", target="rlcore_plugin_{plugin}.command:Typed")]
"""
COMMAND = """
import sys
from rlcore.api import RunError, UsageError
from rlcore.api.commands import Command


class Typed(Command):
    def add_arguments(self, parser):
        parser.add_argument("word")
        parser.add_argument("--json", action="store_true")

    def run(self, args):
        {body}
"""


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True)


def offer(tester: RunTester, name: str, body: str = "return 0", plugin: str = "acme", source: str = COMMAND) -> str:
    """Install a plugin with one command; the distribution's name."""
    entry = ENTRY.format(name=name, plugin=plugin)
    return tester.plugins.install(plugin, entry, files={"command.py": source.replace("{body}", body)})


def test_a_command_of_a_plugin_stands_behind_our_own_by_name(tester: RunTester) -> None:
    offer(tester, "zeta", plugin="zeta")
    offer(tester, "alpha", plugin="alpha")
    lines = tester.run("--help").assert_ok().lines
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    ours = [
        "quickstart",
        "train",
        "resume",
        "launch",
        "runs",
        "compare",
        "rollouts",
        "eval",
        "score",
        "gateway",
        "audit",
        "report",
        "watch",
        "plan",
        "show",
        "env",
        "plugins",
    ]
    assert listed == [*ours, "alpha", "zeta"]
    assert "  alpha        A stranger's command" in lines


def test_it_is_run_with_what_was_typed_and_its_exit_code_is_ours(tester: RunTester) -> None:
    offer(tester, "say", "print(args.word, args.registry.owner('command', 'say')); return 7")
    done = tester.run("say", "hello")
    assert (done.exit_code, done.stdout) == (7, "hello rlcore-plugin-acme\n")


def test_its_help_has_its_summary_and_its_flags(tester: RunTester) -> None:
    offer(tester, "say", "return 7")
    said = tester.run("say", "--help").assert_ok().stdout
    assert said.startswith("usage: rlcore say ")
    assert "A stranger's command" in said
    assert "--json" in said


def test_its_errors_are_one_sentence(tester: RunTester) -> None:
    offer(tester, "say", "raise UsageError('there is no such word; type another')")
    tester.run("say", "hello").assert_refused("error: there is no such word; type another")
    tester.run("say", "hello", "--jsn").assert_refused("--jsn is not an option of rlcore say, did you mean '--json'")
    assert tester.run("say", "hello", "--json").json == {"error": "there is no such word; type another"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{}['word']", "raised KeyError: 'word' (command.py, line 13)"),
        ("sys.exit('no licence')", "raised SystemExit: no licence (command.py, line 13)"),
        ("raise ConnectionRefusedError('nobody listens')", "raised ConnectionRefusedError: nobody listens (command.py, line 13)"),
        ("return 0\n\n    def __init__(self):\n        raise KeyError('key')", "raised KeyError: 'key' (command.py, line 16)"),
    ],
    ids=["raises", "exits", "system", "constructor"],
)
def test_a_defect_shows_its_traceback_and_names_the_plugin(tester: RunTester, body: str, said: str) -> None:
    offer(tester, "say", body)
    done = tester.run("say", "hello", "--json")
    assert done.exit_code == 1
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.splitlines()[-1] == f"error: command 'say' of rlcore-plugin-acme {said}"
    assert list(done.json) == ["error"]


def test_a_file_that_cannot_be_opened_is_named_and_nobody_blamed(tester: RunTester) -> None:
    offer(tester, "say", "return len(open(args.word).read())")
    tester.run("say", "nowhere.txt").assert_refused("error: nowhere.txt: No such file or directory; check the path")


def test_a_module_that_cannot_be_imported_shows_its_traceback_and_names_the_plugin(tester: RunTester) -> None:
    offer(tester, "say", source="import no_such_module_of_anybody\n")
    done = tester.run("say", "hello")
    assert done.exit_code == 2
    assert "Traceback (most recent call last)" in done.stderr
    assert "No module named 'no_such_module_of_anybody'" in done.stderr.splitlines()[-1]
    assert "command 'say' of rlcore-plugin-acme" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (COMMAND.replace("(Command)", ""), "is the class Typed, it must be a class derived from rlcore.api.commands.Command"),
        (COMMAND.replace("def run(", "def walk("), "does not define run(), which every Command must"),
        (COMMAND.replace("{body}", "print(args.word)"), "run() returned NoneType, it must return an exit code"),
        (COMMAND.replace("{body}", "return 256"), "run() returned 256, it must return an exit code"),
        (COMMAND.replace("{body}", "return True"), "run() returned bool, it must return an exit code"),
        (COMMAND.replace("class Typed", "class Other"), "does not exist"),
    ],
    ids=["no_command", "no_run", "no_code", "no_byte", "no_number", "no_target"],
)
def test_what_is_no_command_is_refused_in_one_sentence(tester: RunTester, source: str, said: str) -> None:
    offer(tester, "say", source=source)
    tester.run("say", "hello").assert_refused("command 'say' of rlcore-plugin-acme", said)


def test_two_plugins_with_one_command_are_both_named(tester: RunTester) -> None:
    offer(tester, "say", plugin="one")
    offer(tester, "say", plugin="two")
    assert "  say          cannot be used: rlcore-plugin-one and rlcore-plugin-two both offer it" in tester.run("--help").lines
    said = "command 'say' is registered by rlcore-plugin-one and rlcore-plugin-two; switch one off: RLCORE_DISABLE=rlcore-plugin-two"
    tester.run("say", "hello").assert_refused(said)


def test_a_plugin_that_claims_our_name_is_the_one_to_switch_off(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    tester.plugins.install("acme", ENTRY.format(name="train", plugin="acme"), distribution="acme", files={"command.py": COMMAND})
    tester.run("train", "hello").assert_refused("command 'train' is registered by acme and rlcore; switch one off: RLCORE_DISABLE=acme")
    monkeypatch.setenv("RLCORE_DISABLE", "acme")
    tester.run("train", "--help").assert_ok()


def test_a_command_that_is_switched_off_is_gone_and_the_refusal_says_so(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tester, "say")
    monkeypatch.setenv("RLCORE_DISABLE", "acme,tools")
    assert not [line for line in tester.run("--help").assert_ok().lines if line.startswith(("  say ", "  plan "))]
    tester.run("say", "hello").assert_refused("say is not a command of rlcore", "(switched off: rlcore-plugin-acme, rlcore-plugin-tools)")
    tester.run("plan").assert_refused("command 'plan' belongs to rlcore-plugin-tools, which RLCORE_DISABLE excludes; change that variable")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("plan", "rlcore-plugin-tools"),
        ("quickstart", "rlcore[quickstart]"),
        ("report", "rlcore-plugin-tools"),
        ("watch", "rlcore-plugin-tools"),
        ("score", "rlcore-plugin-tools"),
        ("audit", "rlcore-plugin-tools"),
        ("show", "rlcore-plugin-tools"),
    ],
)
def test_a_known_command_that_is_not_installed_comes_with_what_to_type(
    tester: RunTester, name: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlcore.registry.discovery.distributions", list)
    tester.run(name).assert_refused(f"error: command '{name}' is not installed: {install_line(what)} (installed: plugins, resume, train)")


def test_a_broken_plugin_takes_no_command_along_and_is_named(tester: RunTester) -> None:
    tester.plugins.install("broken", "import [")
    said = tester.run("--help").assert_ok().stdout
    assert "  train " in said
    assert "Installed but broken: rlcore-plugin-broken; rlcore plugins says why." in said
    tester.run("sya").assert_refused("sya is not a command of rlcore", "(broken: rlcore-plugin-broken, see rlcore plugins)")


def test_a_reference_is_no_command_and_imports_nothing(tester: RunTester) -> None:
    tester.write("mine.py", "open('ran', 'w').close()\n")
    tester.run("./mine.py:Mine").assert_refused("./mine.py:Mine is not a command of rlcore")


def test_a_defect_of_ours_is_not_blamed_on_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: PluginsCommand, args: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(PluginsCommand, "run", fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["plugins"])


def test_every_command_is_explained_like_any_plugin(tester: RunTester) -> None:
    for name, line in command_lines().items():
        shown = json.loads(tester.run("show", "command", name, "--json").assert_ok().stdout)
        assert (shown["name"], shown["summary"]) == (name, line)
