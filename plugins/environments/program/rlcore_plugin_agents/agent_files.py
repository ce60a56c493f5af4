"""The folders of an episode of a command line agent. The agent may have left anything in them, such as links to other places."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from rlcore.api import InfrastructureError

__all__ = ["EpisodeFolders", "changed_files", "episode_folders", "file_states", "remove_left_folders", "write_files"]

_SKIPPED = (".git", "__pycache__", "node_modules", ".venv", ".pytest_cache")
"""Folders whose files are not told to rewards."""
_GUARD, _HELD = threading.Lock(), set[Path]()  # locks of files exclude other processes, and not other episodes of this one
_REPEATS = 5  # a killed process may still have written something while its folder was removed


@dataclass(frozen=True, slots=True)
class EpisodeFolders:
    """``root`` is removed at the end. The agent may write in all of it."""

    root: Path

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def notes(self) -> Path:
        """Holds standard output and error, and what a grader reads."""
        return self.root / "notes"

    def renew_notes(self) -> None:
        """Empty the notes, in which the agent may have left links and settings."""
        _remove(self.notes)
        self.notes.mkdir(mode=0o700)

    def sound(self) -> bool:
        """Return whether root and workspace are where they were. If not, nothing may be written in them."""
        return all(path.is_dir() and path.resolve() == path for path in (self.root, self.workspace))


@contextmanager
def episode_folders() -> Iterator[EpisodeFolders]:
    """Make the folders of an episode, and remove them. Their names have the lowest free number, so that prompts seldom differ by it."""
    base, number = _base(), 0
    while (lock := _locked(base / f"{number}.lock")) is None:
        number += 1
    held = base / f"{number}.lock"
    try:
        folders = EpisodeFolders(base / str(number))
        _remove(folders.root)
        for path in (folders.root, folders.workspace, folders.home, folders.notes):
            path.mkdir(mode=0o700)
        try:
            yield folders
        finally:
            _remove(folders.root)
    finally:
        _release(held, lock)


def remove_left_folders() -> None:
    """Remove the folders of processes that were killed."""
    base = _base()
    for folder in (path for path in base.iterdir() if path.suffix != ".lock"):
        if (lock := _locked(held := base / f"{folder.name}.lock")) is not None:
            try:
                _remove(folder)
            finally:
                _release(held, lock)


def _base() -> Path:
    base = Path(tempfile.gettempdir()).resolve() / f"rlcore-agents-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if (found := base.lstat()).st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise InfrastructureError(f"{base} belongs to another user; set TMPDIR to a folder of your own")
    return base


def _locked(path: Path) -> int | None:
    """Return the descriptor of a locked file, None if another process or episode has locked it."""
    with _GUARD:
        if path in _HELD:
            return None
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # sessions of a sandbox have no flock
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            return None
        _HELD.add(path)
        return descriptor


def _release(path: Path, lock: int) -> None:
    with _GUARD:
        os.close(lock)
        _HELD.remove(path)


def _remove(path: Path) -> None:
    """Remove a file, a link, or a folder with whatever rights it has. Nothing happens if there is none."""
    for attempt in range(_REPEATS):
        try:
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
            else:
                path.chmod(0o700)
                for folder, children, _ in os.walk(path):
                    for child in (Path(folder) / name for name in children):
                        if not child.is_symlink():
                            child.chmod(0o700)
                shutil.rmtree(path)
            return
        except OSError:
            if attempt == _REPEATS - 1:
                raise


def write_files(root: Path, files: Any, what: str) -> None:
    """Write texts by their paths below a folder, and follow no links. Raise InfrastructureError if they are something else.

    A text that begins with ``#!`` becomes a program.
    """
    if not isinstance(files, Mapping):
        raise InfrastructureError(f"{what} is a {type(files).__name__}; it must be an object of texts by path")
    for name, text in files.items():
        if text is None:  # a table of columns has all paths in all rows
            continue
        parts = PurePosixPath(name).parts
        if not parts or parts[0] == "/" or ".." in parts or not isinstance(text, str):
            raise InfrastructureError(f"{what} has the entry {name!r}: paths must be relative, without .., and with a text")
        folder = root
        for part in parts[:-1]:
            folder /= part
            if folder.is_symlink() or not folder.is_dir():
                _remove(folder)
                folder.mkdir()
        _remove(folder / parts[-1])
        (folder / parts[-1]).write_text(text, "utf-8")
        if text.startswith("#!"):
            (folder / parts[-1]).chmod(0o755)


def file_states(root: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of the last change of each file, by its path. Links are left out."""
    found = {}
    for folder, children, names in os.walk(root):
        children[:] = sorted(set(children).difference(_SKIPPED))
        for name in sorted(names):
            state = (path := Path(folder) / name).lstat()
            if stat.S_ISREG(state.st_mode):
                found[str(path.relative_to(root))] = (state.st_size, state.st_ctime_ns)
    return found


def changed_files(root: Path, before: Mapping[str, tuple[int, int]], limit: int) -> tuple[dict[str, str | None], int]:
    """Return the new texts of changed files, None for removed ones, and how many more there are: no text, or beyond the limit in bytes."""
    after, texts, left_out = file_states(root), dict[str, str | None](), 0
    for name, state in after.items():
        if before.get(name) == state:
            continue
        try:
            if state[0] > limit:
                raise ValueError
            texts[name] = (root / name).read_text("utf-8")
            limit -= state[0]
        except (OSError, ValueError):
            left_out += 1
    return {**texts, **{name: None for name in before if name not in after}}, left_out
