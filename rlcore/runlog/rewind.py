"""Restore a run folder to one of its checkpoints. Later files are removed, because the resumed run writes them again.

Every step can be repeated. If a kill interrupts this, the same call completes it.
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

__all__ = ["record_of", "rewind", "sizes_of_logs"]

_BY_STEP = ("metrics", "times", "failures")
"""Logs whose lines name their step; lines of later steps are removed. Other logs are cut to the size in the checkpoint."""
_BY_SIZE = ("reward_errors",)


def sizes_of_logs(root: Path) -> dict[str, int]:
    """Return the bytes of each log that is cut by size, for the checkpoint.

    Flushes the logs to disk first, so that no checkpoint outlives the lines of its steps."""
    for name in (*_BY_STEP, *_BY_SIZE):
        if (path := root / f"{name}.jsonl").exists():
            with writing(path):
                sync_entry(path)
    return {name: _size(root / f"{name}.jsonl") for name in _BY_SIZE}


def rewind(folder: RunFolder, step: int, sizes: Mapping[str, int]) -> list[int]:
    """Restore the files as they were when the run saved ``step``. Return the steps of the removed checkpoints, which are later.

    :param sizes: the return value of ``sizes_of_logs`` at that time."""
    later = [known for known in checkpoint_steps(folder.checkpoints) if known > step]
    for known in reversed(later):  # first, the newest before the others: after a kill, the run must not resume from a later one
        drop_checkpoint(folder.checkpoints, known)
    with writing(folder.root):
        (folder.root / "summary.json").unlink(missing_ok=True)
        for place in (folder.checkpoints, folder.evaluations, folder.rollouts, folder.root):
            for aside in (*place.glob(".*.partial"), *place.glob("[!.]*/.*.partial")):  # removing a folder removes its content too
                shutil.rmtree(aside) if aside.is_dir() else aside.unlink()
        for path in (*folder.rollouts.glob("step-*.jsonl.gz"), *folder.evaluations.glob("*/step-*.jsonl")):
            number = path.name.removeprefix("step-").partition(".")[0]
            if number.isdecimal() and int(number) > step:
                path.unlink()
        for name in _BY_STEP:
            _keep_lines(folder.root / f"{name}.jsonl", step)
        for name in _BY_SIZE:
            _cut(folder.root / f"{name}.jsonl", sizes.get(name))
    if step in checkpoint_steps(folder.checkpoints):  # otherwise the run begins again
        write_text(folder.checkpoints / "latest", f"step-{step}\n")
    return later


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _texts(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def record_of(line: bytes) -> dict[str, Any] | None:
    """Return the record, or None for a partial line, which a kill during a write leaves."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _keep_lines(path: Path, step: int) -> None:
    """Keep the complete lines of steps up to ``step``. The totals of a finished run are removed, because it will finish again."""
    lines = _texts(path)
    kept = [line for line in lines if (record := record_of(line)) is not None and _upto(record, step)]
    if len(kept) < len(lines):
        write_text(path, b"".join(kept).decode())


def _upto(record: Mapping[str, Any], step: int) -> bool:
    own = record.get("step")
    return isinstance(own, int) and own <= step


def _cut(path: Path, size: int | None) -> None:
    """Shorten a log to ``size`` bytes (None: unknown), and to its last complete line."""
    if not path.exists():
        return
    text = path.read_bytes()[:size]
    whole = text.rfind(b"\n") + 1
    os.truncate(path, whole)
    sync_entry(path)
