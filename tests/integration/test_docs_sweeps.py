"""docs/how_to/sweeps.md is run: the loop of the shell, what looks at its runs, and Optuna; Ray Tune in tests/integration/ray."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.commands import command_lines
from tests.sweep_page import BLOCKS, PAGE, SweepProject


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> SweepProject:
    """The project in which the loop of the page has run."""
    project = SweepProject(tmp_path_factory.mktemp("sweep"))
    project.shell(BLOCKS["shell"])
    return project


def test_every_block_is_one_that_tests_run() -> None:
    assert set(BLOCKS) == {"shell", "look", "again", "with_optuna.py", "with_ray_tune.py"}
    assert len(re.findall(r"^```\w+", PAGE, re.MULTILINE)) == len(BLOCKS)


@pytest.mark.full
def test_the_loop_is_one_column_a_setting(swept: SweepProject) -> None:
    assert len(swept.runs("sweep")) == 6
    lines = [line for line in BLOCKS["look"].splitlines() if line.split()[1] in command_lines()]
    assert [line.split()[1] for line in lines][:2] == ["runs", "compare"]
    said = swept.shell("\n".join(lines))
    assert said.count("finished") == 12
    assert said.count("n=3") >= 2
    assert re.search(r"^training.learning_rate +(1e-06 +3e-06|3e-06 +1e-06)$", said, re.MULTILINE)
    tester = RunTester(swept.tester.folder, in_process=True)
    found = tester.run("compare", *(str(path) for path in swept.runs("sweep")), "--json").assert_ok().json
    assert [[run["seed"] for run in group["runs"]] for group in found["groups"]] == [[1, 2, 3], [1, 2, 3]]


@pytest.mark.full
def test_the_loop_again_begins_no_run_that_is_there(swept: SweepProject) -> None:
    before = swept.runs("sweep")
    swept.shell(BLOCKS["again"])
    assert swept.runs("sweep") == before


@pytest.mark.full
def test_optuna_names_the_run_of_its_best_trial(tmp_path: Path) -> None:
    project = SweepProject(tmp_path)
    said = project.python("with_optuna.py").splitlines()[-1]
    best = re.match(r"best: (\S+) (\{.*\})", said)
    assert best is not None, said
    assert (tmp_path / best[1] / "summary.json").is_file()
    assert len(project.runs("optuna")) == 4
