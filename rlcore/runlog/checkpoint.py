"""Checkpoints: written aside, flushed, renamed. A checkpoint that exists is whole; ``latest`` points at the newest."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlcore.contracts.interfaces import Saving
from rlcore.runlog.folder import sync_entry, sync_folder, write_json, write_text, writing

__all__ = ["Checkpoint"]


class Checkpoint:
    """``folder/step-N``, from its first byte to its name: ``fill`` has the model and the trainer's state written into a folder aside, and
    what it returns is done when they are there (None: at once); ``state``, as it is now, becomes ``state.json``. A step that was saved
    before is left as it is."""

    def __init__(self, folder: Path, step: int, fill: Callable[[Path], Saving | None], state: Mapping[str, Any]) -> None:
        self.step = step
        self._folder, self._state = folder, state
        self._saving: Saving | None = None
        self._final, self._aside = folder / f"step-{step}", folder / f".step-{step}.partial"
        if self._final.exists():
            return
        self.drop()
        with writing(self._aside):
            self._aside.mkdir(parents=True)
        try:
            self._saving = fill(self._aside)
        except BaseException:
            self.drop()
            raise

    def done(self) -> bool:
        """True if ``finish`` does not wait for the trainer."""
        return self._saving is None or self._saving.done()

    def finish(self) -> Path:
        """Wait until all is written, and give it its name; what went wrong is raised, and nothing is left of it then.

        All files get the permissions that the umask gives. Sizes and SHA-256 of all files stand in ``checkpoint.json``."""
        final, aside = self._final, self._aside
        if final.exists():
            return final
        try:
            if self._saving is not None:
                self._saving.result()
            with writing(aside):
                write_json(aside / "state.json", self._state)
                _share(aside, like=aside / "state.json")
                write_json(aside / "checkpoint.json", {"step": self.step, "files": _inventory(aside)})
                sync_folder(aside)
                aside.rename(final)
                sync_entry(self._folder)
        finally:
            self.drop()
        write_text(self._folder / "latest", f"step-{self.step}\n")
        return final

    def drop(self) -> None:
        """Leave nothing of what has no name yet."""
        shutil.rmtree(self._aside, ignore_errors=True)


def _share(folder: Path, like: Path) -> None:
    """Let whoever may read ``like`` read every file: safetensors writes through a temporary file that only its owner may read."""
    allowed = like.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file() and allowed & ~path.stat().st_mode:
            path.chmod(path.stat().st_mode | allowed)


def _inventory(folder: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found[str(path.relative_to(folder))] = {"bytes": path.stat().st_size, "sha256": digest}
    return found
