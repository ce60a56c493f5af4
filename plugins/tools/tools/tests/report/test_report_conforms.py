"""``rlcore report`` obeys the rules of every command, and ``rlcore watch`` those that a command which does not end by itself can obey."""

from __future__ import annotations

from pathlib import Path

from rlcore_plugin_tools import rlcore_register_commands

from rlcore.testing import RunTester, check_command
from tests.synthetic_runs import SyntheticRun


def test_report_conforms(tmp_path: Path) -> None:
    (report,) = (one for one in rlcore_register_commands() if one.name == "report")
    SyntheticRun(steps=3).write(tmp_path / "run")
    check_command(report, RunTester(tmp_path, in_process=True), "run")


def test_watch_refuses_a_wrong_flag_in_one_sentence(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True)
    tester.run("watch", "run", "--no-such-flag").assert_refused("--no-such-flag")
    tester.run("watch", "run", "--port", "70000").assert_refused("70000", "not a port")
    tester.run("watch", "run").assert_refused("run is not there", "rlcore train")
