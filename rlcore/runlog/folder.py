"""``<run_dir>/<project>/<time>-<id>/``: one folder per run, never shared and never overwritten.

Files are written so that a crash leaves either the old file or the new one, never a partial one.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rlcore.contracts.errors import ConfigError, RunError, disk_full

__all__ = ["RunFolder", "append_json_line", "sync_entry", "sync_folder", "write_json", "write_json_lines", "write_text", "writing"]

_MOST_OF_ACCIDENTS = 4 << 20
"""Maximum bytes of ``failures.jsonl`` and of ``reward_errors.jsonl``, give or take their last two lines."""
_LEVEL = 6
"""The gzip level: half as fast as 1, with files a sixth smaller."""
_PRIVATE = 0o700
_SECOND = "%Y%m%d-%H%M%S"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of a run, and its methods for writing.

    ``-sd``, ``-esd`` and ``-rsd`` move the checkpoints, the evaluations and the rollouts to other places, into a sub-folder named like the
    run.
    """

    root: Path
    checkpoints: Path
    evaluations: Path
    rollouts: Path

    @classmethod
    def at(cls, root: Path, *, save_dir: Path | None, eval_save_dir: Path | None, rollout_save_dir: Path | None) -> RunFolder:
        """Return the folder of a run without creating anything."""
        return cls(
            root=root,
            checkpoints=save_dir / root.name if save_dir else root / "checkpoints",
            evaluations=eval_save_dir / root.name if eval_save_dir else root / "eval",
            rollouts=rollout_save_dir / root.name if rollout_save_dir else root / "rollouts",
        )

    @classmethod
    def create(
        cls,
        run_dir: Path,
        project: str,
        *,
        save_dir: Path | None,
        eval_save_dir: Path | None,
        rollout_save_dir: Path | None,
        private: bool = False,
    ) -> RunFolder:
        """Create a new folder. Two runs that begin together get different ids. ``private``: no other user may read it."""
        name = f"{_beginning(run_dir / project)}-{secrets.token_hex(3)}"
        folder = cls.at(run_dir / project / name, save_dir=save_dir, eval_save_dir=eval_save_dir, rollout_save_dir=rollout_save_dir)
        root = folder.root
        # Create all folders now: one that cannot be written must be detected before training, not at its end.
        made: list[Path] = []
        try:
            for path in folder.places:
                path.mkdir(_PRIVATE if private else 0o777, parents=True, exist_ok=path != root)
                if path not in made:  # two of them may be moved to one place
                    made.append(path)
        except (OSError, ValueError) as error:
            for empty in reversed(made):
                empty.rmdir()
            reason = disk_full(error) or getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"{path}: the folder cannot be created ({reason}); choose others with --run-dir, -p, -sd, -esd and -rsd"
            ) from error
        return folder

    @property
    def places(self) -> tuple[Path, ...]:
        """The folders that hold everything that the run writes."""
        return self.root, self.checkpoints, self.evaluations, self.rollouts

    def restore_places(self, *, private: bool) -> None:
        """Create the folders that a resumed run lacks. ``private``: let only the owner enter them, whatever the umask. Raises RunError."""
        for path in self.places:
            with writing(path):
                path.mkdir(_PRIVATE if private else 0o777, parents=True, exist_ok=True)
                if private:
                    path.chmod(_PRIVATE)

    def deleted(self) -> Path | None:
        """Return the first folder of the run that no longer exists; None if all exist."""
        return next((path for path in self.places if not path.is_dir()), None)

    def write_document(self, name: str, value: Mapping[str, Any]) -> None:
        """Write ``NAME.json``: ``manifest``, the versions of everything; or ``summary``, the final output for the user."""
        write_json(self.root / f"{name}.json", value)

    def log(self, name: str, record: Mapping[str, Any]) -> None:
        """Append one line to ``NAME.jsonl``: ``metrics``."""
        append_json_line(self.root / f"{name}.jsonl", record)

    def log_capped(self, name: str, record: Mapping[str, Any]) -> None:
        """Append one line to ``NAME.jsonl``. At 4 MB the log ends, with a line that says so.

        ``failures`` has the prompts that could not be scored, with the reason. ``reward_errors`` has the exceptions of rewards, with their
        place and the response."""
        path = self.root / f"{name}.jsonl"
        room = _MOST_OF_ACCIDENTS - (path.stat().st_size if path.exists() else 0)
        if room <= 0:
            return
        last = {"step": record.get("step"), "left_out": f"{path.name} ends here, at {_MOST_OF_ACCIDENTS >> 20} MB"}
        ends = len(_encoded(json_lines([record]))) >= room
        append_json_line(path, record, *([last] if ends else []))

    def log_times(self, workers: Mapping[str, Mapping[str, float]], step: int | None = None) -> None:
        """Append one line to ``times.jsonl``: seconds by worker and category, to the microsecond, of a step, or of the whole run if
        ``step`` is None."""
        record: dict[str, Any] = {"total": True} if step is None else {"step": step}
        rounded = {worker: {category: round(spent, 6) for category, spent in seconds.items()} for worker, seconds in workers.items()}
        self.log("times", {**record, "workers": rounded})

    def write_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]], most: float) -> None:
        """Write ``rollouts/step-N.jsonl.gz``. All of these files have at most ``most`` bytes; the oldest are removed."""
        data = gzip.compress(_encoded(json_lines(rows)), _LEVEL, mtime=0)  # the same rows give the same bytes
        self._write_rotated(self.rollouts / f"step-{step}.jsonl.gz", self.rollouts.glob("step-*.jsonl.gz"), data, most)

    def write_evaluation(self, task: str, step: int, rows: Iterable[Mapping[str, Any]], most: float) -> None:
        """Write ``eval/<task>/step-N.jsonl``. The files of all tasks have at most ``most`` bytes; the oldest are removed."""
        known = self.evaluations.glob("*/step-*.jsonl")
        self._write_rotated(self.evaluations / task / f"step-{step}.jsonl", known, _encoded(json_lines(rows)), most)

    def _write_rotated(self, path: Path, known: Iterable[Path], data: bytes, most: float) -> None:
        """Remove the oldest ``known`` files until the new one fits, those of steps 0 and 1 last. A file that alone is too large is kept.

        The choice depends only on the sizes, so a resumed run ends with the same files as an uninterrupted one."""
        others = {old: old.stat().st_size for old in known if old != path}
        total = sum(others.values()) + len(data)
        with writing(path):
            for old in sorted(others, key=lambda old: (_step(old) <= 1, _step(old), old)):
                if total <= most:
                    break
                old.unlink(missing_ok=True)
                total -= others[old]
        write_bytes(path, data)


def _beginning(project: Path) -> str:
    """Return the second at which a run begins, later than all runs of its project.

    A clock that was set back, or the end of summer time, must not make the run older than they are."""
    now = datetime.now()
    for path in project.glob("????????-??????-*"):
        with suppress(ValueError, OverflowError):  # another program's folder
            now = max(now, datetime.strptime(path.name[: len("20260131-235959")], _SECOND) + timedelta(seconds=1))
    return now.strftime(_SECOND)


def _step(path: Path) -> int:
    number = path.name.removeprefix("step-").partition(".")[0]
    return int(number) if number.isdecimal() else 0


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A context that turns an OSError (a full disk) into a RunError with its file, or with ``path`` if the system names none."""
    try:
        yield
    except OSError as error:
        problem = disk_full(error) or error.strerror or error
        raise RunError(f"{error.filename or path}: cannot be written ({problem})") from None


def write_text(path: Path, text: str) -> None:
    """Write a text with ``write_bytes``."""
    write_bytes(path, _encoded(text))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a temporary file, flush it to disk, and rename it. Create its folder, but none above it: a deleted run must not come back."""
    aside = path.with_name(f".{path.name}.partial")
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        try:
            with aside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        sync_entry(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write one readable JSON document."""
    write_text(path, json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False, sort_keys=True) + "\n")


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a complete JSONL file or none."""
    write_text(path, json_lines(rows))


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return one JSON object per line."""
    return "".join(json.dumps(_plain(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows)


def append_json_line(path: Path, *rows: Mapping[str, Any]) -> None:
    """Append one or more lines to a log in a single call. A kill can cut the last line; a full disk leaves the log unchanged."""
    line = _encoded(json_lines(rows))
    with writing(path), path.open("ab", buffering=0) as file:
        end = file.tell()
        try:
            while line:
                line = line[file.write(line) :]
        except OSError:
            file.truncate(end)
            raise


def sync_folder(folder: Path) -> None:
    """Flush every file below a folder, and the folders themselves, to disk."""
    for path in [*folder.rglob("*"), folder]:
        sync_entry(path)


def sync_entry(path: Path) -> None:
    """Flush a file, or a folder's list of names, so that a rename in it survives a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _encoded(text: str) -> bytes:
    """Return the text in UTF-8, with "?" for half of a surrogate pair.

    JSON can escape such a half, so a response may contain one; it must not end a run."""
    return text.encode("utf-8", errors="replace")


def _plain(value: Any) -> Any:
    """Return a JSON value. JSON has no NaN or infinity, so null means "no figure"."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value
