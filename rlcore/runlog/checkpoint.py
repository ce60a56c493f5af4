"""Checkpoints. The files are written in a temporary folder, hashed and flushed. ``checkpoint.json`` is written last and commits them; then
the folder is renamed.

A folder ``step-N`` is complete unless its disk damaged it, which ``verify`` detects. ``latest`` names the newest.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

from rlcore.contracts.errors import ConfigError, RunError, disk_full
from rlcore.contracts.interfaces import PendingSave
from rlcore.host.bounded_reading import json_document
from rlcore.runlog.folder import sync_entry, sync_folder, write_json, write_text, writing

__all__ = ["Checkpoint", "checkpoint_steps", "prune", "verify"]

_MARKER = "checkpoint.json"
_BLOCK = 1 << 20


class Checkpoint:
    """The checkpoint ``folder/step-N`` while it is written.

    ``fill`` writes the model and the trainer's state into a temporary folder. Its returned ``PendingSave`` is done when the files are
    complete (None: immediately). ``state``, as it is now, becomes ``state.json``. A thread then hashes and flushes all files and renames
    the folder while training continues. The thread calls ``then`` after the renaming. A step that was saved before is left unchanged. One
    thread calls all methods.
    """

    def __init__(
        self,
        folder: Path,
        step: int,
        fill: Callable[[Path], PendingSave | None],
        state: Mapping[str, Any],
        then: Callable[[], None] | None = None,
    ) -> None:
        self.step = step
        self._folder, self._state, self._then = folder, state, then
        self._saving: PendingSave | None = None
        self._sealing: threading.Thread | None = None
        self._error: BaseException | None = None
        self._given_up = threading.Event()
        self._final, self._aside = folder / f"step-{step}", folder / f".step-{step}.partial"
        if self._final.exists():
            return
        self.drop()
        self._given_up.clear()
        with writing(self._aside):
            self._aside.mkdir()
        try:
            self._saving = fill(self._aside)
        except BaseException as error:
            self._fail(error)
        if self._saving is None:
            self._seal()

    def done(self) -> bool:
        """Return whether ``finish`` would return immediately. The first call after the trainer has written its files starts the hashing."""
        if self._sealing is None and self._saving is not None and self._saving.done():
            self._written()
        return self._final.exists() if self._sealing is None else not self._sealing.is_alive()

    def is_filled(self) -> bool:
        """Return whether the trainer has written its files, so that ``finish`` does not wait for a worker."""
        self.done()
        return self._sealing is not None or self._final.exists()

    def finish(self) -> Path:
        """Wait until the checkpoint has its final name. If writing it failed, remove its files and raise the error.

        All files get the permissions that the umask gives. ``checkpoint.json`` records the size and SHA-256 of every file."""
        if self._sealing is None and self._saving is not None:
            self._written()
        if self._sealing is not None:
            self._sealing.join()
        if self._error is not None:
            self._fail(self._error)
        return self._final

    def drop(self) -> None:
        """Remove everything that does not have its final name yet."""
        self._given_up.set()
        if self._sealing is not None:
            self._sealing.join()
        shutil.rmtree(self._aside, ignore_errors=True)

    def _written(self) -> None:
        assert self._saving is not None
        try:
            self._saving.result()  # in the thread of the loop, the only one that may ask a writer
        except BaseException as error:
            self._fail(error)
        self._seal()

    def _fail(self, error: BaseException) -> NoReturn:
        """Remove the files and raise the error. A full disk is reported as such, whatever error a library made of it."""
        full = self._aside.exists() and shutil.disk_usage(self._aside).free < _BLOCK
        self.drop()
        if isinstance(error, Exception) and (full or disk_full(error)):
            raise RunError(str(error) if disk_full(error) else f"{error}; disk full: {self._folder}") from None
        raise error

    def _seal(self) -> None:
        self._sealing = threading.Thread(target=self._commit, name=f"checkpoint-{self.step}", daemon=True)
        self._sealing.start()

    def _commit(self) -> None:
        aside = self._aside
        try:
            with writing(aside):
                write_json(aside / "state.json", self._state)
                _share(aside, like=aside / "state.json")
                files = _inventory(aside, self._given_up)
                sync_folder(aside)
                if self._given_up.is_set():
                    return
                write_json(aside / _MARKER, {"step": self.step, "files": files})
                aside.rename(self._final)
                sync_entry(self._folder)
            write_text(self._folder / "latest", f"step-{self.step}\n")
            if self._then is not None:
                self._then()
        except BaseException as error:  # raised by ``finish``, in the thread that may raise
            self._error = error


def checkpoint_steps(folder: Path) -> list[int]:
    """Return the steps with finished checkpoints in a folder, in ascending order, without verifying them."""
    names = [path.name.removeprefix("step-") for path in folder.glob("step-*") if path.is_dir()]
    return sorted(int(name) for name in names if name.isdecimal() and name == str(int(name)))


def verify(checkpoint: Path, below: str = "") -> None:
    """Read every file of a checkpoint and compare it with ``checkpoint.json``.

    Raises ConfigError with one sentence that names the first file that is damaged or absent.

    :param below: check only one folder of the checkpoint."""
    again = "it is damaged; use another checkpoint, or copy it again"
    try:
        marker = json_document(checkpoint / _MARKER)
        if checkpoint.name.startswith("step-") and checkpoint.name != f"step-{marker['step']}":
            raise ConfigError(f"{checkpoint} is the checkpoint of step {marker['step']}, by its {_MARKER}; rename it back")
        for name, known in marker["files"].items():
            path = checkpoint / name
            if not name.startswith(below):
                continue
            if (size := path.stat().st_size) != known["bytes"]:
                raise ConfigError(f"{path} has {size} bytes, and {_MARKER} says {known['bytes']}: {again}")
            if _digest(path) != known["sha256"]:
                raise ConfigError(f"{path} has changed since it was saved (its SHA-256 differs from that in {_MARKER}): {again}")
    except FileNotFoundError as error:
        raise ConfigError(f"{error.filename} is absent from the checkpoint {checkpoint}: {again}") from None
    except OSError as error:
        raise ConfigError(f"{error.filename or checkpoint} cannot be read ({error.strerror or error}): {again}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{checkpoint / _MARKER} cannot be understood: {again}") from None


def prune(folder: Path, keep: int, protected: Collection[int]) -> None:
    """Remove all checkpoints except the newest ``keep`` and those of ``protected`` steps. A partly removed one no longer has its name."""
    for step in checkpoint_steps(folder)[:-keep]:
        if step not in protected:
            drop_checkpoint(folder, step)


def drop_checkpoint(folder: Path, step: int) -> None:
    """Remove a checkpoint. It is renamed first, so that a kill in between does not leave a partial checkpoint."""
    aside = folder / f".step-{step}.removed.partial"
    with writing(folder / f"step-{step}"):
        shutil.rmtree(aside, ignore_errors=True)
        (folder / f"step-{step}").rename(aside)
        shutil.rmtree(aside)


def _share(folder: Path, like: Path) -> None:
    """Let every user that may read ``like`` read every file: safetensors writes through a temporary file that only its owner may read."""
    allowed = like.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file() and allowed & ~path.stat().st_mode:
            path.chmod(path.stat().st_mode | allowed)


def _inventory(folder: Path, given_up: threading.Event) -> dict[str, dict[str, Any]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": _digest(path, given_up)} for path in files}


def _digest(path: Path, given_up: threading.Event | None = None) -> str:
    """Return the SHA-256 in hex, or another value if ``given_up`` is set before the end.

    Reads in blocks, each of which frees the interpreter for other threads."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while (block := file.read(_BLOCK)) and not (given_up is not None and given_up.is_set()):
            digest.update(block)
    return digest.hexdigest()
