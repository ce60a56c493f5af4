"""Standard streams that the caller closed (``>&-``): every command does its work, and its exit code is that of open streams."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET

STDOUT, ALL = ">&-", "<&- >&- 2>&-"
closings = pytest.mark.parametrize("closing", [STDOUT, ALL], ids=["stdout", "all"])


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    tester = RunTester(tmp_path).with_fakes()
    tester.fake_run()
    return tester


def shell(tester: RunTester, command: str, closing: str) -> tuple[int, str]:
    """Run ``rlcore command`` with closed streams; return its exit code and standard error."""
    done = subprocess.run(
        ["bash", "-c", f"exec {shlex.join([sys.executable, '-c', PROGRAM])} {command} {closing}"],
        cwd=tester.folder,
        env={**tester.plugins.environment, **QUIET},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    return done.returncode, done.stderr


@closings
@pytest.mark.parametrize("command", ["--help", "show config run.toml", "train run.toml --dry-run --json"])
def test_a_command_ends_as_with_open_streams(tester: RunTester, command: str, closing: str) -> None:
    assert shell(tester, command, closing) == (0, "")


@closings
def test_a_refusal_keeps_its_exit_code(tester: RunTester, closing: str) -> None:
    code, said = shell(tester, "train run.toml -tbs 0", closing)
    assert code == 2
    assert said.count("\n") == (closing == STDOUT)


@closings
@pytest.mark.parametrize("words", ["", "--json --max-staleness 2 --runtime local"], ids=["one process", "processes"])
def test_a_run_completes(tester: RunTester, words: str, closing: str) -> None:
    code, said = shell(tester, f"train run.toml {words}", closing)
    assert code == 0, said
    (run,) = tester.folder.glob("runs/*/*")
    assert json.loads((run / "summary.json").read_text("utf-8"))["steps"] == 3
    assert all(
        json.loads(line) for path in run.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()
    )  # nothing was printed there
