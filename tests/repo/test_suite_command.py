"""``make test`` runs what it can side by side, the serial tests alone after it, and ends as one run of pytest would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import os, pathlib, pytest

def test_beside():
    pathlib.Path("beside").write_text(os.environ.get("PYTEST_XDIST_WORKER", "none"))

def test_may_fail():
    assert not os.environ.get("FAIL")

@pytest.mark.serial
def test_alone():
    assert pathlib.Path("beside").exists(), "after all others"
    pathlib.Path("alone").write_text(os.environ.get("PYTEST_XDIST_WORKER", "none"))
"""


NOTE = """
import os, pathlib, pytest

pytestmark = pytest.mark.interpreter  # it starts no program, so conftest.py need not get any ready

def test_it():
    with pathlib.Path("order").open("a") as file:
        file.write(f"{__file__.rpartition('/')[2]} {os.environ.get('PYTEST_XDIST_WORKER')}\\n")
"""


LIGHT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist"}
"""Each of these tests starts pytest three to six times; other plugins take a second and a half of every start."""


def suite(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  serial\n  fast\n  interpreter\n", encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "tests.suite", "--workers", "1", *words],
        cwd=folder,
        env={**kept, **LIGHT, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def three_tests(tmp_path: Path) -> Path:
    (tmp_path / "test_three.py").write_text(TESTS, encoding="utf-8")
    return tmp_path


def test_serial_tests_run_alone_after_a_failure_too_and_the_last_line_adds_up(three_tests: Path) -> None:
    done = suite(three_tests, "--workers", "2", "--junitxml", "report.xml", FAIL="1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 2 passed" in done.stdout.splitlines()[-1] or "2 passed, 1 failed" in done.stdout.splitlines()[-1]
    assert (three_tests / "beside").read_text().startswith("gw")
    assert (three_tests / "alone").read_text() == "none"
    assert sorted(path.name for path in three_tests.glob("*.xml")) == ["report-alone.xml", "report-beside.xml"]


def test_alone_only_files_that_mark_a_serial_test_are_read(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_three.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "tests" / "test_other.py").write_text(
        "import os, pathlib\npathlib.Path('readers').open('a').write(os.environ.get('PYTEST_XDIST_WORKER', 'none') + ' ')\n"
        "def test_other():\n    pass\n",
        encoding="utf-8",
    )
    done = suite(tmp_path, "--workers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout.splitlines()[-1]
    assert sorted((tmp_path / "readers").read_text().split()) == ["gw0", "gw1"]
    marked = [path.relative_to(ROOT) for top in ("tests", "plugins", "rlcore") for path in (ROOT / top).rglob("*.py") if in_text(path)]
    assert all(path.name.startswith("test_") for path in marked), "a marker that is set elsewhere would not be seen"


def in_text(path: Path) -> bool:
    return "mark.serial" in path.read_text(encoding="utf-8")


SECOND_TIME = """
import pathlib, pytest

def test_fails_once():
    tried = pathlib.Path("tried").exists()
    pathlib.Path("tried").touch()
    assert tried

def test_fails_always():
    assert not pathlib.Path("always").exists()

@pytest.mark.serial
def test_fails_once_alone():
    tried = pathlib.Path("tried alone").exists()
    pathlib.Path("tried alone").touch()
    assert tried
"""


def forgiven(folder: Path, *tests: str) -> tuple[str, ...]:
    """The words that name a list of forgiven tests."""
    entries = (f'[[forgiven]]\ntest = "test_twice.py::{test}"\nreason = "seen"\ndate = {date.today()}\n' for test in tests)
    (folder / "forgiven.toml").write_text("".join(entries), encoding="utf-8")
    return ("--again", "--forgiven", str(folder / "forgiven.toml"))


def test_again_forgives_what_is_listed_and_passes_alone_and_names_it(tmp_path: Path) -> None:
    (tmp_path / "test_twice.py").write_text(SECOND_TIME, encoding="utf-8")
    done = suite(tmp_path, *forgiven(tmp_path, "test_fails_once", "test_fails_once_alone"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_twice.py::test_fails_once PASSED" in done.stdout
    assert "test_twice.py::test_fails_once_alone PASSED" in done.stdout
    assert "test_fails_always PASSED" not in done.stdout
    assert "run again after a failure, names above: 2 passed" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("workers", ["1", "0"])
def test_what_passes_alone_and_is_not_listed_fails_the_run_and_says_what_to_do(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_twice.py").write_text(SECOND_TIME, encoding="utf-8")
    done = suite(tmp_path, *forgiven(tmp_path, "test_fails_once"), "--workers", workers)
    assert done.returncode == 1, done.stdout + done.stderr
    *_, said, last = done.stdout.splitlines()
    assert said.startswith(
        "test_twice.py::test_fails_once_alone fails beside other tests and passes alone, and groups/forgiven.toml does not"
    )
    assert "mend it, or add it there with a reason and today's date" in said
    assert "2 passed" in last


def test_a_list_that_forgives_too_much_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_twice.py").write_text(SECOND_TIME, encoding="utf-8")
    done = suite(tmp_path, *forgiven(tmp_path, *"abcdef"))
    assert done.returncode == 2
    assert done.stderr == "tests.suite: forgiven.toml forgives 6 tests, and at most 5 are allowed; mend 1 of them\n"
    assert not (tmp_path / "tried").exists()


@pytest.mark.parametrize("always", [False, True])
def test_again_is_the_same_in_one_process(tmp_path: Path, always: bool) -> None:
    (tmp_path / "test_twice.py").write_text(SECOND_TIME, encoding="utf-8")
    if always:
        (tmp_path / "always").touch()
    done = suite(tmp_path, *forgiven(tmp_path, "test_fails_once", "test_fails_once_alone"), "--workers", "0")
    assert done.returncode == always, done.stdout + done.stderr
    assert f"run again after a failure, names above: {'1 failed, 2 passed' if always else '2 passed'}" in done.stdout.splitlines()[-1]


def test_again_does_not_forgive_what_fails_twice(tmp_path: Path) -> None:
    (tmp_path / "test_twice.py").write_text(SECOND_TIME, encoding="utf-8")
    (tmp_path / "always").touch()
    done = suite(tmp_path, *forgiven(tmp_path, "test_fails_once", "test_fails_once_alone", "test_fails_always"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 2 passed" in done.stdout.splitlines()[-1]


SKIPS_OR_GOES = """
import pathlib, pytest
tried = pathlib.Path("tried")
again = tried.exists()
def test_skips():
    tried.touch()
    if again: pytest.skip("not now")
    assert False
@pytest.mark.parametrize("case", ["second" if again else "first"])
def test_changes_its_name(case):
    assert again
def test_fails_once(): assert again
"""


@pytest.mark.parametrize("words", [["--workers", "0"], ["--workers", "1"], ["--workers", "0", "-q"]])
def test_again_forgives_only_what_passed(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "test_twice.py").write_text(SKIPS_OR_GOES, encoding="utf-8")
    done = suite(tmp_path, *forgiven(tmp_path, "test_skips", "test_changes_its_name", "test_fails_once"), *words)
    assert done.returncode == 1, done.stdout + done.stderr
    for test in ("test_skips", "test_changes_its_name[first]"):
        assert f"test_twice.py::{test} failed, and did not run again: it was skipped, or not found" in done.stdout
    assert "test_fails_once failed, and" not in done.stdout


def test_again_needs_a_failure_that_it_can_name(tmp_path: Path) -> None:
    (tmp_path / "test_twice.py").write_text(SECOND_TIME, encoding="utf-8")
    assert suite(tmp_path, *forgiven(tmp_path, "test_fails_once"), "-p", "no:cacheprovider").returncode != 0


@pytest.mark.parametrize("words", [["--pdb"], ["-s"], ["-n0"]])
def test_what_needs_a_terminal_runs_in_one_process(three_tests: Path, words: list[str]) -> None:
    done = suite(three_tests, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (three_tests / "beside").read_text() == (three_tests / "alone").read_text() == "none"


def test_what_is_printed_after_the_summary_hides_no_figures(three_tests: Path) -> None:
    (three_tests / "conftest.py").write_text(
        "import atexit\natexit.register(print, '7 failed attempts to say goodbye')\n", encoding="utf-8"
    )
    done = suite(three_tests)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 3 passed in " in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["test_three.py::test_beside"], 0, "1 passed"),
        (["-m", "serial", "-k", "beside"], 5, "no tests ran"),
        (["--no-such-option"], 4, "unrecognized arguments: --no-such-option"),
        (["-k", "alone or beside"], 0, "2 passed"),
        (["-kbeside"], 0, "1 passed"),
        (["-k", "a and"], 4, "ERROR: Wrong expression passed to '-k': a and: at column 6"),
        (["-k", "a and", "-m", "serial"], 4, "ERROR: Wrong expression passed to '-k'"),
        (["-m", "a and"], 4, "ERROR: Wrong expression passed to '-m'"),
    ],
)
def test_a_part_without_tests_is_no_failure_but_no_test_at_all_is(three_tests: Path, words: list[str], code: int, said: str) -> None:
    done = suite(three_tests, *words)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr


@pytest.mark.parametrize("workers", ["-1", "x", "1.5"])
def test_workers_that_are_no_number_of_processes_are_one_sentence(three_tests: Path, workers: str) -> None:
    done = suite(three_tests, "--workers", workers)
    assert done.returncode == 2
    assert done.stderr == f"tests.suite: --workers {workers} is no number of processes; type WORKERS=2, or WORKERS=0 for one process\n"
    assert done.stdout == ""


def test_runs_on_a_ray_cluster_are_in_one_process_from_the_start(tmp_path: Path) -> None:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    cluster, others = [f"integration/ray/test_{name}.py" for name in ("one", "two", "three")], ["contracts/test_before.py", "test_after.py"]
    for name in (*cluster, *others):
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(NOTE, encoding="utf-8")
    assert suite(tmp_path, "--workers", "0").returncode == 0
    written = (tmp_path / "order").read_text().splitlines()
    assert {line.split()[0] for line in written[:3]} == {Path(name).name for name in cluster}
    assert suite(tmp_path, "--workers", "2").returncode == 0
    workers = dict(line.split() for line in (tmp_path / "order").read_text().splitlines()[len(written) :])
    assert len({workers[Path(name).name] for name in cluster}) == 1
    assert all(workers[Path(name).name] != workers["test_one.py"] for name in others)
