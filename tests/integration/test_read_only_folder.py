"""A disk that cannot be written: refused before anything begins, or one sentence that says what was kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlcore.runlog.checkpoint import verify
from rlcore.runlog.past_runs import past_runs
from rlcore.runtime.training_run import TrainingRun
from rlcore.testing import RunTester
from tests.mounts import mounted, read_only, writable


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", 20_000) as folder:
        yield folder


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    """A run of six updates with a checkpoint after each in ``disk``."""
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.fake_run(run={"num_episodes": 20, "max_steps": 6, "run_dir": "disk"}, log={"save_interval": 1})
    return tester


def test_a_run_that_cannot_have_its_folder_is_refused(tester: RunTester, disk: Path) -> None:
    read_only(disk)
    said = "run_dir = disk (run.toml): disk cannot be written; name another folder with --run-dir"
    tester.run("train", "run.toml").assert_refused(said)
    tester.run("train", "run.toml", "--resume", "auto").assert_refused(said)


def test_one_that_becomes_so_ends_the_run_which_goes_on_elsewhere(tester: RunTester, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    due = TrainingRun._save_due

    def read_only_from_4(self: TrainingRun, version: int) -> bool:
        if version == 4:
            self._end_save()  # of step 3, which is hashed beside the training
            read_only(disk)
        return due(self, version)

    with monkeypatch.context() as patched:
        patched.setattr(TrainingRun, "_save_due", read_only_from_4)
        done = tester.run("train", "run.toml")
    assert done.exit_code == 1
    assert "Traceback" not in done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "cannot be written (Read-only file system); the last checkpoint is disk/rlcore/" in sentence
    assert sentence.endswith("checkpoints/step-3")
    (run,) = past_runs(disk / "rlcore")
    verify(run.checkpoints / "step-3")
    refused = f"{run.root} cannot be written (Read-only file system), and a run needs its folder"
    tester.run("resume", str(run.root)).assert_refused(refused)
    tester.run("train", "run.toml", "--resume", "auto").assert_refused("cannot be written (Read-only file system)")
    tester.run("resume", str(run.root), "--dry-run").assert_refused("cannot be written; name another folder with --run-dir")
    writable(disk)
    assert tester.run("resume", str(run.root), "--json").assert_ok().json["steps"] == 6
