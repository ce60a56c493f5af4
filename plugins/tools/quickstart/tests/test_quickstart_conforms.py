"""``rlcore quickstart`` obeys the rules of every command."""

from __future__ import annotations

from pathlib import Path

from rlcore_plugin_quickstart import rlcore_register_commands

from rlcore.testing import RunTester, check_command


def test_the_command_conforms(tmp_path: Path) -> None:
    (spec,) = rlcore_register_commands()
    check_command(spec, RunTester(tmp_path, in_process=True), "demo", "--dry-run")


def test_the_plan_of_the_task_with_a_calculator(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True)
    assert "calculator.py:play" in tester.run("quickstart", "--task", "tools", "--dry-run").assert_ok().stdout
    tester.run("quickstart", "--task", "chess").assert_refused("'chess' is not a valid task; choose from sort, tools")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("quickstart")]
