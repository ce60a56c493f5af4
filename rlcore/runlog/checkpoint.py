"""Checkpoints: written aside, flushed, renamed. A checkpoint that exists is whole; ``latest`` points at the newest."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlcore.runlog.folder import sync_entry, sync_folder, write_json, write_text, writing

__all__ = ["save_checkpoint"]


def save_checkpoint(folder: Path, step: int, fill: Callable[[Path], None], state: Mapping[str, Any]) -> Path:
    """Make ``folder/step-N``: ``fill`` writes the model and the trainer's state into it, ``state`` becomes ``state.json``.

    All files get the permissions that the umask gives. Sizes and SHA-256 of all files stand in ``checkpoint.json``. A step that was saved
    before is left as it is.
    """
    final = folder / f"step-{step}"
    if final.exists():
        return final
    aside = folder / f".step-{step}.partial"
    shutil.rmtree(aside, ignore_errors=True)
    with writing(aside):
        aside.mkdir(parents=True)
    try:
        fill(aside)
        with writing(aside):
            write_json(aside / "state.json", state)
            _share(aside, like=aside / "state.json")
            write_json(aside / "checkpoint.json", {"step": step, "files": _inventory(aside)})
            sync_folder(aside)
            aside.rename(final)
            sync_entry(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    write_text(folder / "latest", f"step-{step}\n")
    return final


def _share(folder: Path, like: Path) -> None:
    """Let whoever may read ``like`` read every file: safetensors writes through a temporary file that only its owner may read."""
    allowed = like.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file() and allowed & ~path.stat().st_mode:
            path.chmod(path.stat().st_mode | allowed)


def _inventory(folder: Path) -> dict[str, dict[str, Any]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in files}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
