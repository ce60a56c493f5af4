"""docs/how_to/cluster.md: every rlcore line in it plans a run, what it names exists, and what the batch file does is told in its order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from rlcore_plugin_ray.launch.slurm_steps import STEPS

from rlcore.testing import RunTester
from tests.commands import command_lines

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "cluster.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
OURS = [line for line in LINES if line.startswith("rlcore ")]


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.fake_run()
    return tester


@pytest.mark.parametrize("line", OURS)
def test_every_command_is_accepted(tester: RunTester, line: str) -> None:
    words = shlex.split(line)[1:]
    assert words[0] in command_lines()
    tester.run(*words, *(() if "--dry-run" in words else ("--dry-run",))).assert_ok()


def test_the_file_that_is_handed_to_sbatch_is_the_one_that_was_written(tester: RunTester) -> None:
    place = LINES.index("sbatch run.sbatch")
    written = tester.run(*shlex.split(LINES[place - 1])[1:]).assert_ok().written
    assert written == (Path("run.sbatch"),)


def test_every_flag_of_the_table_is_one_of_launch(tester: RunTester) -> None:
    text = tester.run("launch", "--help").assert_ok().stdout
    table = PAGE[PAGE.index("| flag | means") : PAGE.index("The steps of the file")]
    flags = re.findall(r"`(--[a-z-]+)`", table)
    assert len(flags) >= 9
    assert all(flag in text for flag in flags)


def test_numbers_that_the_page_states_are_those_of_the_batch_file(tester: RunTester) -> None:
    text = tester.run("launch", "slurm", "run.toml", "--dry-run").assert_ok().stdout
    assert "B:TERM@120" in text
    assert "120 s before" in PAGE
    assert "RLCORE_JOIN_SECONDS:-600" in text
    assert "600 s" in PAGE
    assert "most_requeues=3" in text
    assert "20000 + SLURM_JOB_ID % 5000 * 2" in STEPS


def test_what_has_not_been_tried_is_said() -> None:
    assert "Not tried: nodes on several machines, GPUs" in PAGE
    assert "**A requeued job resumes**" in PAGE
    assert "on one machine only" in PAGE
