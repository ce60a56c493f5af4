"""What is written is on the disk before its name says that it is there: a power cut leaves the old file or the new one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlcore.runlog.checkpoint import Checkpoint
from rlcore.runlog.folder import sync_folder, write_text
from rlcore.runlog.rewind import sizes_of_logs

Event = tuple[str, Path, int]
"""("fsync", path, bytes in the file) or ("rename", the new name, 0), in the order in which they happened."""


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The real calls happen, and are written down."""
    found: list[Event] = []
    fsync = os.fsync

    def recording(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        found.append(("fsync", path, path.stat().st_size if path.is_file() else 0))
        fsync(descriptor)

    def renaming(real: Callable[..., Any]) -> Callable[..., Any]:
        def rename(old: Path, new: Path, **more: Any) -> None:
            found.append(("rename", Path(new), 0))
            real(old, new, **more)

        return rename

    monkeypatch.setattr(os, "fsync", recording)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, renaming(getattr(os, name)))
    return found


def test_a_file_is_flushed_whole_then_renamed_then_its_name_is_flushed(tmp_path: Path, events: list[Event]) -> None:
    write_text(tmp_path / "a.txt", "x" * 100)
    assert events == [("fsync", tmp_path / ".a.txt.partial", 100), ("rename", tmp_path / "a.txt", 0), ("fsync", tmp_path, 0)]


def test_logs_are_flushed_when_their_sizes_are_noted_for_a_checkpoint(tmp_path: Path, events: list[Event]) -> None:
    names = ("metrics", "times", "failures", "reward_errors")
    for name in names:
        (tmp_path / f"{name}.jsonl").write_text("{}\n")
    assert sizes_of_logs(tmp_path) == {"reward_errors": 3}
    assert events == [("fsync", tmp_path / f"{name}.jsonl", 3) for name in names]


def tree(folder: Path) -> set[Path]:
    """Three levels of files; returns all of it, the folders too."""
    for name in ("one", "a/two", "a/b/three", "c/four"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"abc")
    return {folder, *folder.rglob("*")}


def test_a_folder_is_flushed_with_everything_below_it(tmp_path: Path, events: list[Event]) -> None:
    paths = tree(tmp_path / "top")
    sync_folder(tmp_path / "top")
    assert {path for _, path, _ in events} == paths


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name_and_the_pointer_comes_last(tmp_path: Path, events: list[Event]) -> None:
    written: set[Path] = set()

    def fill(folder: Path) -> None:
        written.update(tree(folder))
        events.clear()

    saved = Checkpoint(tmp_path, 7, fill, {"version": 7}).finish()
    named, pointed = (events.index(("rename", path, 0)) for path in (saved, tmp_path / "latest"))
    aside = tmp_path / ".step-7.partial"
    committed = events.index(("rename", aside / "checkpoint.json", 0))
    assert committed < named
    assert written | {aside / "state.json"} <= {path for kind, path, _ in events[:committed] if kind == "fsync"}
    assert ("fsync", aside, 0) in events[committed:named]
    assert ("fsync", tmp_path, 0) in events[named:pointed]
    assert ("fsync", tmp_path, 0) in events[pointed:]
