"""A checkpoint that exists is whole; one that failed leaves nothing."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from rlcore.api import RunError
from rlcore.runlog.checkpoint import Checkpoint


def fill(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "weights").write_bytes(b"abc")


def test_files_state_inventory_and_pointer(tmp_path: Path) -> None:
    saved = Checkpoint(tmp_path, 7, fill, {"version": 7}).finish()
    assert saved == tmp_path / "step-7"
    assert json.loads((saved / "state.json").read_text()) == {"version": 7}
    inventory = json.loads((saved / "checkpoint.json").read_text())["files"]
    assert inventory["model/weights"] == {"bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    assert (tmp_path / "latest").read_text() == "step-7\n"


def test_a_failure_leaves_neither_a_folder_nor_a_pointer(tmp_path: Path) -> None:
    def fails(folder: Path) -> None:
        fill(folder)
        raise OSError("disk full")

    with pytest.raises(RunError, match="disk full"):
        Checkpoint(tmp_path, 7, fails, {}).finish()
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_was_saved_is_left_alone(tmp_path: Path) -> None:
    Checkpoint(tmp_path, 7, fill, {"first": True}).finish()
    Checkpoint(tmp_path, 7, fill, {"first": False}).finish()
    assert json.loads((tmp_path / "step-7" / "state.json").read_text()) == {"first": True}


def test_every_byte_of_a_large_file_enters_its_digest(tmp_path: Path) -> None:
    content = bytes(range(256)) * 9000  # more than two blocks

    def write(folder: Path) -> None:
        (folder / "large").write_bytes(content)

    saved = Checkpoint(tmp_path, 7, write, {}).finish()
    entry = json.loads((saved / "checkpoint.json").read_text())["files"]["large"]
    assert entry == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_what_a_killed_attempt_left_is_not_in_the_next_one(tmp_path: Path) -> None:
    (tmp_path / ".step-7.partial" / "model").mkdir(parents=True)
    (tmp_path / ".step-7.partial" / "old").write_text("half")
    saved = Checkpoint(tmp_path, 7, fill, {}).finish()
    assert not (saved / "old").exists()
    assert (saved / "model" / "weights").exists()


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o007, 0o660), (0o077, 0o600)])
def test_every_file_has_the_permissions_of_the_umask(umask: int, mode: int, tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        fill(folder)
        (folder / "model" / "weights").chmod(0o600)  # as a library leaves it that writes through a temporary file

    before = os.umask(umask)
    try:
        saved = Checkpoint(tmp_path, 7, write, {}).finish()
    finally:
        os.umask(before)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in saved.rglob("*") if path.is_file()} == {
        "weights": mode,
        "state.json": mode,
        "checkpoint.json": mode,
    }


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file/\.step-1\.partial: cannot be written \(Not a directory\)$"):
        Checkpoint(tmp_path / "file", 1, fill, {}).finish()


class Writing:
    """What a trainer that writes in the background returns: its files are there once ``over`` is set."""

    def __init__(self, over: bool) -> None:
        self.over = over

    def done(self) -> bool:
        return self.over

    def result(self) -> None:
        assert self.over, "a run whose rank is lost waits for the files of that rank"


def test_whether_the_trainer_has_written_is_told_without_waiting_for_it(tmp_path: Path) -> None:
    """A rank that is lost while it writes must not be waited for; one that has written leaves a checkpoint worth its name."""
    writing = Writing(over=False)
    checkpoint = Checkpoint(tmp_path, 1, lambda folder: writing, {})
    assert not checkpoint.is_filled()
    writing.over = True
    assert checkpoint.is_filled()
    assert checkpoint.finish() == tmp_path / "step-1"
    assert checkpoint.is_filled()
