"""``<run_dir>/<project>/<time>-<id>/``: one folder a run, never shared, never overwritten.

A file is written so that a crash leaves the old one or the new one, never half of one.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.contracts.errors import ConfigError

__all__ = ["RunFolder", "append_json_line", "sync_folder", "sync_folder_entry", "write_json", "write_json_lines", "write_text"]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of a run and the few ways in which it writes.

    ``-sd``, ``-esd`` and ``-rsd`` move the checkpoints, the evaluations and the rollouts elsewhere, into a sub-folder named like the run.
    """

    root: Path
    checkpoints: Path
    evaluations: Path
    rollouts: Path

    @classmethod
    def create(
        cls, run_dir: Path, project: str, *, save_dir: Path | None, eval_save_dir: Path | None, rollout_save_dir: Path | None
    ) -> RunFolder:
        """Make a fresh folder; two runs of the same second get different ids."""
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        root = run_dir / project / name
        folder = cls(
            root=root,
            checkpoints=save_dir / name if save_dir else root / "checkpoints",
            evaluations=eval_save_dir / name if eval_save_dir else root / "eval",
            rollouts=rollout_save_dir / name if rollout_save_dir else root / "rollouts",
        )
        # All of them now: a folder that cannot be written must be known before the training, not at its end.
        made: list[Path] = []
        try:
            for path in (root, folder.checkpoints, folder.evaluations, folder.rollouts):
                path.mkdir(parents=True, exist_ok=path != root)
                if path not in made:  # two of them may be moved to one place
                    made.append(path)
        except (OSError, ValueError) as error:
            for empty in reversed(made):
                empty.rmdir()
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"{path}: the folder cannot be made ({reason}); choose others with --run-dir, -p, -sd, -esd and -rsd"
            ) from error
        return folder

    def write_config(self, toml: str) -> None:
        """``run.toml``: the resolved configuration, ready to be run again."""
        write_text(self.root / "run.toml", toml)

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """``manifest.json``: versions of everything."""
        write_json(self.root / "manifest.json", manifest)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """``summary.json``: what the user was shown at the end."""
        write_json(self.root / "summary.json", summary)

    def log_metrics(self, record: Mapping[str, Any]) -> None:
        """One line of ``metrics.jsonl``."""
        append_json_line(self.root / "metrics.jsonl", record)

    def log_times(self, workers: Mapping[str, Mapping[str, float]], step: int | None = None) -> None:
        """One line of ``times.jsonl``: seconds by worker and category, to the microsecond, of a step; of the whole run where ``step`` is
        None."""
        record: dict[str, Any] = {"total": True} if step is None else {"step": step}
        rounded = {worker: {category: round(spent, 6) for category, spent in seconds.items()} for worker, seconds in workers.items()}
        append_json_line(self.root / "times.jsonl", {**record, "workers": rounded})

    def log_failure(self, record: Mapping[str, Any]) -> None:
        """One line of ``failures.jsonl``: a prompt that could not be judged, and why."""
        append_json_line(self.root / "failures.jsonl", record)

    def log_reward_error(self, record: Mapping[str, Any]) -> None:
        """One line of ``reward_errors.jsonl``: an exception that a reward raised, where, and the text that met it."""
        append_json_line(self.root / "reward_errors.jsonl", record)

    def write_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """``rollouts/step-N.jsonl``."""
        write_json_lines(self.rollouts / f"step-{step}.jsonl", rows)

    def write_evaluation(self, task: str, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """``eval/<task>/step-N.jsonl``."""
        write_json_lines(self.evaluations / task / f"step-{step}.jsonl", rows)


def write_text(path: Path, text: str) -> None:
    """Write aside, flush to disk, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.partial")
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync_folder_entry(path.parent)


def write_json(path: Path, value: Any) -> None:
    """One JSON document, readable."""
    write_text(path, json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False, sort_keys=True) + "\n")


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """A JSONL file, whole or not at all."""
    write_text(path, "".join(json.dumps(_plain(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows))


def append_json_line(path: Path, row: Mapping[str, Any]) -> None:
    """One more line of a log, written in a single call so that a reader never meets half a line; on a full disk none of it stays."""
    line = (json.dumps(_plain(row), ensure_ascii=False, allow_nan=False) + "\n").encode()
    with path.open("ab", buffering=0) as file:
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
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_folder_entry(folder: Path) -> None:
    """Flush a folder's list of names, so that a rename in it survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for "no figure"."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value
