"""``rlcore eval`` obeys the rules of every command."""

from __future__ import annotations

from rlcore_plugin_tools import rlcore_register_commands

from rlcore.testing import RunTester, check_command


def test_the_command_conforms(tester: RunTester) -> None:
    (spec,) = (spec for spec in rlcore_register_commands() if spec.name == "eval")
    check_command(spec, tester, "model", "run.toml", "-d", "held.jsonl")
