"""Environments in the user's cache folder. One is complete if its marker, which is written last, is there."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rlcore.api import ConfigError, PluginError, RunError, UsageError
from rlcore_plugin_workers.environment_locks import Lock, named_lock

__all__ = ["MARKER", "build", "cache_folder", "folder_of", "is_whole", "kept", "named_folder", "remove"]

MARKER = "rlcore-environment.json"
_EVERY = 20
"""Packages between two lines of progress."""
Report = Callable[[str], None]


def cache_folder() -> Path:
    """Return the folder of all environments: ``rlcore/envs`` in XDG_CACHE_HOME, or in ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".cache") / "rlcore" / "envs"


def folder_of(lock: Lock) -> Path:
    """Return the folder of this lock's environment, whether or not it exists."""
    return cache_folder() / f"{lock.name}-{lock.key}"


def is_whole(folder: Path) -> bool:
    """Return whether the environment was built completely."""
    return (folder / MARKER).is_file()


def named_folder(environment: str) -> Path:
    """Return the folder of a virtual environment that is named by its path, or as ``rlcore env build`` knows it.

    :raises ConfigError: it is an environment of an installed plugin, which has not been made; or a word that names neither an environment
        nor a folder.
    """
    folder = Path(environment).expanduser()
    if os.sep in environment or folder.exists():
        return folder.absolute()
    try:
        lock = named_lock(environment)
    except PluginError:
        raise
    except UsageError as error:
        raise ConfigError(f"there is no folder {folder.absolute()}, and {error}") from None
    if not is_whole(folder_of(lock)):
        raise ConfigError(f"environment {environment} has not been made; type: rlcore env build {environment}")
    return folder_of(lock)


def kept(lock: Lock) -> list[Path]:
    """Return the folders of an environment: of its lock, of older locks, and of failed builds; none of another Python or kind of
    machine."""
    found = (path for path in cache_folder().glob(f"{lock.name}-*") if path.is_dir() and path.name.rpartition("-")[0] == lock.name)
    return sorted(path for path in found if _made_for(path, lock.made_for) == lock.made_for)


def _made_for(folder: Path, default: str) -> str:
    """Return the Python and machine of a folder; for a failed build the default, since nothing can use it."""
    try:
        return str(json.loads((folder / MARKER).read_text(encoding="utf-8")).get("for", default))
    except (OSError, ValueError):
        return default


def build(lock: Lock, report: Report) -> bool:
    """Make the environment; return False if it was there. If it cannot be made, raise RunError and leave nothing behind.

    If two processes build the same one, the second waits and then finds it complete.
    """
    folder = folder_of(lock)
    if is_whole(folder):
        return False
    with (
        _refused(f"{lock.name} cannot be made", "type XDG_CACHE_HOME=FOLDER before the command to make it elsewhere"),
        _alone(lock.name, folder, report) as held,
    ):
        if is_whole(folder):
            return False
        _delete(folder)  # a killed build may have left files
        try:
            _make(lock, folder, held, report)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return True


def remove(lock: Lock, folder: Path, report: Report) -> bool:
    """Delete an environment; return False if another process deleted it first. The marker goes first, so that nothing takes an incomplete
    folder for a complete one."""
    with _refused(f"{lock.name} cannot be deleted", f"delete {folder} by hand"), _alone(lock.name, folder, report):
        there = folder in kept(lock)
        if there:
            (folder / MARKER).unlink(missing_ok=True)
            _delete(folder)
            _log(folder).unlink(missing_ok=True)
    return there


@contextmanager
def _refused(what: str, advice: str) -> Iterator[None]:
    """Raise RunError for an error of the file system."""
    try:
        yield
    except BrokenPipeError:  # the reader of the progress is gone
        raise
    except OSError as error:
        free = ""
        if error.errno == errno.ENOSPC:
            free = f" ({shutil.disk_usage(cache_folder()).free / 1e9:.1f} GB are free without it)"
        raise RunError(f"environment {what}: {error.filename or cache_folder()}: {error.strerror or error}{free}; {advice}") from error


@contextmanager
def _alone(name: str, folder: Path, report: Report) -> Iterator[int]:
    """Hold the lock of this folder, so that no other process builds or removes it.

    A pip that a killed build left also keeps it locked, since pip inherits the yielded descriptor. The holder deletes the lock file; a
    process that waited for a deleted file starts again.
    """
    busy = folder.with_name(f"{folder.name}.busy")
    busy.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with busy.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                report(f"{name}: waiting for process {file.read()}, or the pip that it started, which builds or removes {folder}")
                fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file.fileno()).st_nlink:
                continue
            try:
                file.truncate(0)
                file.write(str(os.getpid()))
                file.flush()
                yield file.fileno()
            finally:
                busy.unlink(missing_ok=True)
            return


def _delete(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _log(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")


def _make(lock: Lock, folder: Path, held: int, report: Report) -> None:
    report(f"{lock.name}: {len(lock.requirements)} packages into {folder}")
    _run([lock.interpreter(), "-m", "venv", str(folder)], lock, held, report)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--no-deps"]
    for index in sorted(set(lock.requirements.values()), reverse=True):  # packages of an index first, since they may be missing
        wanted = [package for package, its in lock.requirements.items() if its == index]
        _run([*pip, *([f"--extra-index-url={index}"] if index else []), *wanted], lock, held, report, index)
    about = {"name": lock.name, "owner": lock.owner, "packages": len(lock.requirements), "for": lock.made_for}
    (folder / "new").write_text(json.dumps(about) + "\n", encoding="utf-8")
    (folder / "new").replace(folder / MARKER)


def _run(command: list[str], lock: Lock, held: int, report: Report, index: str = "") -> None:
    """Run a program and write its output to the log; if it fails, raise RunError with its last message."""
    collected, said, log = 0, "", _log(folder_of(lock))
    with (
        log.open("a", encoding="utf-8", buffering=1) as file,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[held],
            process_group=0,  # so that processes that pip started end with it
        ) as process,
    ):
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
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
    if "No space left on device" in said:
        raise OSError(errno.ENOSPC, said, str(folder_of(lock)))
    if process.returncode:
        advice = ""
        if "No matching distribution" in said:
            own = f"; {index} has it, if this machine can reach that index" if index else ""
            advice = f"{own}; type PIP_EXTRA_INDEX_URL=ADDRESS before the command to name an index that has it"
        raise RunError(f"environment {lock.name} cannot be made: {said}{advice} (full output: {log})")
