"""``rlcore quickstart`` obeys the rules of every command."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore_plugin_quickstart import rlcore_register_commands

from rlcore.api.commands import EXTRAS, install_line
from rlcore.testing import RunTester, check_command
from tests.levels import need


def test_the_command_conforms(tmp_path: Path) -> None:
    (spec,) = rlcore_register_commands()
    check_command(spec, RunTester(tmp_path, in_process=True), "demo", "--dry-run")


def test_the_plan_of_the_task_with_a_calculator(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True)
    assert "calculator.py:play" in tester.run("quickstart", "--task", "tools", "--dry-run").assert_ok().stdout
    tester.run("quickstart", "--task", "chess").assert_refused("'chess' is not a valid task; choose from sort, tools, repair")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("quickstart")]


def test_the_plan_of_the_task_with_repositories(tmp_path: Path) -> None:
    need("namespaces")
    tester = RunTester(tmp_path, in_process=True)
    assert "repair.py:Repair" in tester.run("quickstart", "--task", "repair", "--dry-run").assert_ok().stdout
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("quickstart")]


@pytest.mark.parametrize("flags", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_without_bubblewrap_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    refused = RunTester(tmp_path, in_process=True).run("quickstart", "--task", "repair", *flags)
    refused.assert_refused(
        "error: the task repair runs what the model writes in sessions of a sandbox, which need bubblewrap and a kernel that lets it make "
        "namespaces; type: apt install bubblewrap (no sandbox can be made here (namespaces: bubblewrap is not installed)"
    )
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("quickstart")]


def test_without_the_sandbox_its_package_is_named(tmp_path: Path) -> None:
    others = (f"rlcore-plugin-{name}" for name in EXTRAS["quickstart"] if name != "gateway")
    refused = RunTester(tmp_path, in_process=True).with_only(*others).run("quickstart", "--task", "repair")
    refused.assert_refused("error: the task repair runs what the model writes in a sandbox: ", install_line("rlcore-plugin-sandbox"))
