"""A run folder, put back to one of its checkpoints: what was written after it is made again, so it goes.

Every step can be done twice, and a kill in between leaves a folder that the same call puts right.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.runlog.checkpoint import checkpoint_steps, drop_checkpoint
from rlcore.runlog.folder import RunFolder, sync_entry, write_text, writing

__all__ = ["rewind", "sizes_of_logs"]

_BY_STEP = ("metrics", "times", "failures")
"""Logs whose lines say their step; what they hold of later steps goes. The others are cut where the checkpoint says."""
_BY_SIZE = ("reward_errors",)


def sizes_of_logs(root: Path) -> dict[str, int]:
    """Bytes of each log that is cut by its size; to be kept in the checkpoint. What the logs hold is flushed to disk, so that no checkpoint
    outlives the lines of its steps."""
    for name in (*_BY_STEP, *_BY_SIZE):
        if (path := root / f"{name}.jsonl").exists():
            with writing(path):
                sync_entry(path)
    return {name: _size(root / f"{name}.jsonl") for name in _BY_SIZE}


def rewind(folder: RunFolder, step: int, sizes: Mapping[str, int]) -> list[int]:
    """Leave what the run had written when it saved ``step``. ``sizes``: what ``sizes_of_logs`` said then.

    Returns the steps of the checkpoints that went: those after ``step``."""
    later = [known for known in checkpoint_steps(folder.checkpoints) if known > step]
    for known in reversed(later):  # first of all, the newest first: a kill must not leave a later one to begin from
        drop_checkpoint(folder.checkpoints, known)
    with writing(folder.root):
        (folder.root / "summary.json").unlink(missing_ok=True)
        for place in (folder.checkpoints, folder.evaluations, folder.rollouts, folder.root):
            for aside in (*place.glob(".*.partial"), *place.glob("[!.]*/.*.partial")):  # what lies in one goes with it
                shutil.rmtree(aside) if aside.is_dir() else aside.unlink()
        for path in (*folder.rollouts.glob("step-*.jsonl.gz"), *folder.evaluations.glob("*/step-*.jsonl")):
            number = path.name.removeprefix("step-").partition(".")[0]
            if number.isdecimal() and int(number) > step:
                path.unlink()
        for name in _BY_STEP:
            _keep_lines(folder.root / f"{name}.jsonl", step)
        for name in _BY_SIZE:
            _cut(folder.root / f"{name}.jsonl", sizes.get(name))
    if step in checkpoint_steps(folder.checkpoints):  # else the run begins anew
        write_text(folder.checkpoints / "latest", f"step-{step}\n")
    return later


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _texts(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def _record(line: bytes) -> dict[str, Any] | None:
    """None for half a line, which a kill in the middle of a write leaves."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _keep_lines(path: Path, step: int) -> None:
    """Keep the whole lines of steps up to ``step``. The total of a run that had ended goes, since it will end anew."""
    lines = _texts(path)
    kept = [line for line in lines if (record := _record(line)) is not None and _upto(record, step)]
    if len(kept) < len(lines):
        write_text(path, b"".join(kept).decode())


def _upto(record: Mapping[str, Any], step: int) -> bool:
    own = record.get("step")
    return isinstance(own, int) and own <= step


def _cut(path: Path, size: int | None) -> None:
    """Shorten a log to ``size`` bytes (None: nobody noted it), and to its last whole line."""
    if not path.exists():
        return
    text = path.read_bytes()[:size]
    whole = text.rfind(b"\n") + 1
    os.truncate(path, whole)
    sync_entry(path)
