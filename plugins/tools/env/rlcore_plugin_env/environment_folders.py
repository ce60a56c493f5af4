"""Environments in the user's cache folder. One is whole if its marker, which is written last, is there."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rlcore.api import RunError
from rlcore_plugin_env.locks import Lock

__all__ = ["MARKER", "build", "cache_folder", "folder_of", "is_whole", "kept", "remove"]

MARKER = "rlcore-environment.json"
_EVERY = 20
"""Packages between two lines of progress."""
Report = Callable[[str], None]


def cache_folder() -> Path:
    """Where all of them are: ``rlcore/envs`` in XDG_CACHE_HOME, or in ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".cache") / "rlcore" / "envs"


def folder_of(lock: Lock) -> Path:
    """Where the environment of this lock is, or will be."""
    return cache_folder() / f"{lock.name}-{lock.key}"


def is_whole(folder: Path) -> bool:
    """Whether it was built to the end."""
    return (folder / MARKER).is_file()


def kept(name: str) -> list[Path]:
    """The folders of an environment: of its lock as it is, and of older ones."""
    return sorted(path for path in cache_folder().glob(f"{name}-*") if path.is_dir() and path.name.rpartition("-")[0] == name)


def build(lock: Lock, report: Report) -> bool:
    """Make the environment; False if it was there. RunError, and nothing left behind, if pip fails.

    Two processes that build one at a time: the second waits, and finds it made.
    """
    folder = folder_of(lock)
    if is_whole(folder):
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        if is_whole(folder):
            return False
        shutil.rmtree(folder, ignore_errors=True)  # what a build that was killed has left
        try:
            report(f"{lock.name}: {len(lock.requirements)} packages into {folder}")
            _run([sys.executable, "-m", "venv", str(folder)], lock, _log(folder), report)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
            _run([*pip, "install", "--no-deps", "-r", str(lock.path)], lock, _log(folder), report)
            about = {"name": lock.name, "owner": lock.owner, "packages": len(lock.requirements)}
            (folder / MARKER).write_text(json.dumps(about) + "\n", encoding="utf-8")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return True


def remove(folder: Path) -> None:
    """The marker first, so that nothing takes half of it for whole."""
    with _alone(folder):
        (folder / MARKER).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        _log(folder).unlink(missing_ok=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else builds or removes this folder meanwhile; a process that dies lets go of it."""
    with folder.with_name(f"{folder.name}.busy").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _log(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")


def _run(command: list[str], lock: Lock, log: Path, report: Report) -> None:
    """Run a program whose output goes to ``log``; RunError, with what it said last, if it fails."""
    collected, said = 0, ""
    with log.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                file.write(line)
                said = line.strip() if "ERROR" in line or not said.startswith("ERROR") else said
                if line.startswith(("Collecting ", "Processing ")):
                    collected += 1
                    if collected % _EVERY == 0:
                        report(f"{lock.name}: {collected} of {len(lock.requirements)} packages found")
                if line.startswith("Installing collected packages"):
                    report(f"{lock.name}: installing")
            process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode:
        raise RunError(f"environment {lock.name} cannot be made: {said} (its whole output: {log})")
