"""``rlcore plan`` obeys the rules of every command."""

from __future__ import annotations

from pathlib import Path

from rlcore_plugin_tools import rlcore_register_commands

from rlcore.testing import RunTester, check_command


def test_the_command_conforms(tmp_path: Path) -> None:
    (spec,) = (spec for spec in rlcore_register_commands() if spec.name == "plan")
    check_command(spec, RunTester(tmp_path, in_process=True), "--devices", "4", "-tbs", "8", "-g", "2", "--updates", "2")
