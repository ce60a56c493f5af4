"""A disk that is full: one sentence, the exit code of a failed run, and nothing half-written."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlcore.api import RunError
from rlcore.runlog.folder import append_json_line, write_text
from rlcore.testing import RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET

FULL = Path("/dev/full")


def limited(size: int) -> Callable[[], None]:
    """In a process of its own: no file may grow beyond ``size`` bytes, as on a disk that is full then."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def run(
    tester: RunTester, *argv: str, stdout: str = "out", stderr: str = "err", size: int = resource.RLIM_INFINITY
) -> tuple[int, str, str]:
    with (tester.folder / stdout).open("w") as out, (tester.folder / stderr).open("w") as err:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *argv],
            cwd=tester.folder,
            env={**tester.plugins.environment, **QUIET},
            stdout=out,
            stderr=err,
            timeout=120,
            check=False,
            preexec_fn=limited(size),
        )
    texts = [path.read_text() if path.is_file() else "" for path in (tester.folder / stdout, tester.folder / stderr)]
    return done.returncode, texts[0], texts[1]


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path).with_fakes()


@pytest.mark.parametrize("size", [900, 1_600, 4_000, 9_000])
def test_a_run_whose_disk_is_full_ends_with_one_sentence_and_whole_files(tester: RunTester, size: int) -> None:
    config = tester.fake_run(run={"num_episodes": 60, "max_steps": 60})
    (tester.folder / "out").symlink_to("/dev/null")
    code, _, said = run(tester, "train", config, size=size)
    assert code == 1, said
    (line,) = said.splitlines()
    assert line.startswith("error: ")
    assert "cannot be written (File too large)" in line
    (root,) = (tester.folder / "runs" / "rlcore").iterdir()
    for path in root.rglob("*"):
        assert not path.name.endswith(".partial")
        if path.suffix == ".jsonl":
            assert all(json.loads(row) for row in path.read_text().splitlines())
            assert path.read_text().endswith("\n")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "argv", [("plugins", "--json"), ("--help",), ("train", "run.toml", "--dry-run", "--json"), ("train", "run.toml", "--json")]
)
def test_standard_output_that_takes_nothing_is_one_sentence(tester: RunTester, argv: tuple[str, ...]) -> None:
    tester.fake_run()
    code, _, said = run(tester, *argv, stdout=str(FULL))
    assert code == 1
    assert "Traceback" not in said
    assert said.splitlines()[-1] == (
        "error: standard output, or a file that is written: disk full (No space left on device); make room on its disk"
    )


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_standard_error_that_takes_nothing_hides_neither_exit_code_nor_json(tester: RunTester) -> None:
    assert run(tester, "nonsense", "--json", stderr=str(FULL))[:2] == (
        2,
        '{"error": "nonsense is not a command of rlcore; type rlcore --help for the list"}\n',
    )


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_run_goes_on_if_what_it_prints_cannot_be_written(tester: RunTester) -> None:
    code, _, said = run(tester, "train", tester.fake_run(), stdout=str(FULL))
    assert code == 0
    assert said == "warning: the output of the run cannot be written (No space left on device); the run continues without it\n"
    assert list(tester.folder.glob("runs/*/*/checkpoints/step-3/checkpoint.json"))


def test_a_line_of_a_log_is_whole_or_absent(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    append_json_line(log, {"step": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        with pytest.raises(RunError, match=r"log\.jsonl: cannot be written \(File too large\)$"):
            append_json_line(log, {"step": 2, "text": "x" * 100})
        with pytest.raises(RunError, match=r"summary\.json: cannot be written \(File too large\)$"):
            write_text(tmp_path / "summary.json", "x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert log.read_text() == '{"step": 1}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]
