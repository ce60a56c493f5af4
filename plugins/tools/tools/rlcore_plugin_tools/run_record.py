"""Reads the files of a run that has finished, was killed, or is still running.

A reader takes no lock and changes nothing. It skips an incomplete last line, which a kill left or a writer is still adding.
"""

from __future__ import annotations

import json
import math
import os
import socket
import tomllib
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlcore.api import ConfigError
from rlcore.api.runs import (
    BestCheckpoint,
    BestFigure,
    InputTooLargeError,
    PastRun,
    RunFolder,
    bounded_lines,
    checkpoint_steps,
    json_document,
    last_writer,
    read_document,
    read_manifest,
    unpacked,
)

__all__ = ["RunRecord", "as_rollout", "json_rows"]

_DIGITS = 19
"""Digits of whole numbers that no run reaches."""
_MOST_UNPACKED = 1 << 30
"""The most bytes of the rollouts of one update. Repetitive text packs well, so the size on disk says little."""
_MOST_LINES = 1_000_000
_OF_ROLLOUTS = {"prediction": "text", "format_valid": "format_ok", "ans_valid": "accuracy", "response_length": "length"}
"""Names of fields in a row of an evaluation, and the names of the same fields in a rollout."""


class RunRecord:
    """The files of one run, read at each call. Raises ConfigError, which names the file, if one cannot be understood."""

    def __init__(self, root: Path) -> None:
        """Open the run folder ``root``; ConfigError if it is not a run folder."""
        if not (root / "run.toml").is_file():
            raise ConfigError(f"{root} is not a run folder, since it has no run.toml; type the folder that rlcore train printed")
        self.root = root
        try:
            self.config: Mapping[str, Any] = tomllib.loads(read_document(root / "run.toml").decode("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{root / 'run.toml'} cannot be read ({error}); restore it") from None
        if strange := [name for name, table in self.config.items() if name in ("run", "log", "eval") and not isinstance(table, dict)]:
            raise ConfigError(f"{root / 'run.toml'} is damaged: {strange[0]} is not a table; restore it")
        log, evaluated = self.config.get("log", {}), self.config.get("eval", {})
        self._folder = RunFolder.at(
            root,
            save_dir=_moved(log.get("save_dir")),
            eval_save_dir=_moved(evaluated.get("eval_save_dir")),
            rollout_save_dir=_moved(log.get("rollout_save_dir")),
        )

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints."""
        return self._folder.checkpoints

    def checkpoint_steps(self) -> list[int]:
        """Return the updates that have checkpoints; none of them is verified."""
        return checkpoint_steps(self.checkpoints)

    def best_step(self) -> int:
        """Return the best step by the run's ``log.best_by``, 0 for the model that the run began with.

        UsageError if that step has no checkpoint, or if no step has the figure."""
        return self._ranked().step_among({0, *self.checkpoint_steps()}, self.root)

    @property
    def manifest(self) -> dict[str, Any]:
        """Versions, plugins, seed and data; {} if the run was killed before it was written."""
        return read_manifest(self.root) or {}

    @property
    def summary(self) -> dict[str, Any] | None:
        """The figures that the user saw at the end; None if the run has not reached its end."""
        path = self.root / "summary.json"
        try:
            found: dict[str, Any] = json_document(path)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ConfigError(f"{path} is damaged ({error}); remove it, and the run counts as unfinished") from None
        return found

    @property
    def state(self) -> str:
        """``finished``, ``interrupted`` (and saved), ``running``, or ``ended``: it died, or was killed."""
        if PastRun(self.root).finished is not None:
            return "finished"
        if self.summary is not None:
            return "interrupted"
        return "running" if _lives(last_writer(self.root)) else "ended"

    @property
    def planned_steps(self) -> int | None:
        """The number of planned updates; None if the settings do not bound it and the manifest is absent."""
        limit = self.config.get("run", {}).get("max_steps")
        if limit is not None:
            return int(limit)
        manifest = self.manifest
        told = [part["planned_steps"] for part in (manifest, *manifest.get("resumes", ())) if "planned_steps" in part]
        return int(told[-1]) if told else None

    def updates(self) -> list[dict[str, Any]]:
        """Return the metrics of each update, in order."""
        return [row for row in self._metrics() if "seconds" in row]

    def evaluations(self) -> list[dict[str, Any]]:
        """Return the figures of each evaluation, by step."""
        return sorted((row for row in self._metrics() if "seconds" not in row), key=lambda row: int(row["step"]))

    def _metrics(self) -> Iterator[dict[str, Any]]:
        for row in json_rows(self.root / "metrics.jsonl"):
            if not isinstance(row.get("step"), int):
                raise ConfigError(f"{self.root / 'metrics.jsonl'} has a line without a step; restore the file, or remove the line")
            yield row

    def times(self) -> list[dict[str, Any]]:
        """Return seconds by worker and category of each step; the last row is of the whole run, if it ended."""
        return list(json_rows(self.root / "times.jsonl"))

    def best(self) -> BestFigure | None:
        """Return the best value of the figure that ``log.best_by`` names; None if no step has it. Of equals, prefer one with a
        checkpoint."""
        return self._ranked().kept(self.checkpoint_steps())

    def _ranked(self) -> BestCheckpoint:
        tasks = tuple(self.config.get("eval", {}).get("eval_dataset", ()))
        best = BestCheckpoint(self.config.get("log", {}).get("best_by", "accuracy"), tasks)
        for row in self._metrics():
            best.saw(row["step"], row)
        return best

    def failures(self) -> list[dict[str, Any]]:
        """Return the prompts that could not be judged, and why."""
        return list(json_rows(self.root / "failures.jsonl"))

    def reward_errors(self) -> list[dict[str, Any]]:
        """Return the exceptions that rewards raised, and where."""
        return list(json_rows(self.root / "reward_errors.jsonl"))

    def rollout_steps(self) -> list[int]:
        """Return the updates whose rollouts are there."""
        return _steps(self._folder.rollouts)

    def rollout_file(self, step: int) -> Path:
        """Return the file of an update's rollouts, which need not exist. A reader that polls sees by it whether they changed, as after a
        run that went back."""
        return _existing(self._folder.rollouts, step)

    def rollouts(self, step: int) -> Iterator[dict[str, Any]]:
        """Yield one row per rollout of one update, group by group; nothing if they are not there."""
        return json_rows(self.rollout_file(step))

    def tasks(self) -> list[str]:
        """Return the held-out tasks that have answers."""
        return sorted(path.name for path in self._folder.evaluations.glob("[!.]*") if path.is_dir())

    def evaluated_steps(self, task: str) -> list[int]:
        """Return the steps that have answers to a held-out task."""
        return _steps(self._folder.evaluations / task)

    def evaluation_rows(self, task: str, step: int) -> list[dict[str, Any]]:
        """Return one row per completion of a held-out task at one step; [] if they are not there."""
        return list(json_rows(_existing(self._folder.evaluations / task, step)))


def as_rollout(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of an evaluation with the field names of a rollout: ``text``, ``accuracy``, …; a rollout stays unchanged."""
    return {_OF_ROLLOUTS.get(name, name): value for name, value in row.items()}


def _moved(path: str | None) -> Path | None:
    return Path(path) if path else None


def _steps(folder: Path) -> list[int]:
    numbers = (path.name.removeprefix("step-").partition(".")[0] for path in folder.glob("step-*.jsonl*"))
    return sorted({int(number) for number in numbers if number.isdecimal()})


def _existing(folder: Path, step: int) -> Path:
    compressed = folder / f"step-{step}.jsonl.gz"
    return compressed if compressed.exists() else folder / f"step-{step}.jsonl"


def json_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of a JSONL file, compressed or not, in order; nothing if the file is not there."""
    for number, line in _raw_lines(path):
        if not line.endswith(b"\n"):  # an incomplete line
            return
        try:
            row = json.loads(line, parse_float=_finite, parse_int=_held, parse_constant=lambda name: None)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}:{number} is not JSON ({error}); restore the file, or remove the line") from None
        if not isinstance(row, dict):
            raise ConfigError(f"{path}:{number} is not a JSON object; restore the file, or remove the line")
        yield row


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if path.exists() and not path.is_file():  # a pipe would block the reader
        raise ConfigError(f"{path} is not a regular file; remove it")
    try:
        with path.open("rb") as file:
            for number, line in bounded_lines(unpacked(file, _MOST_UNPACKED, _MOST_LINES) if path.suffix == ".gz" else file):
                if number > _MOST_LINES:
                    raise InputTooLargeError(f"it has more than {_MOST_LINES} lines")
                yield number, line
    except FileNotFoundError:
        return
    except InputTooLargeError as error:
        raise ConfigError(f"{path} contains more than a run writes ({error}); remove it") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read ({error}); remove it") from None


def _finite(digits: str) -> float | None:
    """Return the number; None if no float can hold it, as a run writes null for a figure that is not finite."""
    value = float(digits)
    return value if math.isfinite(value) else None


def _held(digits: str) -> int | None:
    """Return the whole number; None if 64 bits cannot hold it."""
    return int(digits) if len(digits) < _DIGITS else None


def _lives(signed: str) -> bool:
    """Return whether the process that signed the lock of a run (``process 12 on host``) is alive; a process of another host is assumed to
    be."""
    words = signed.split()
    if len(words) < 4 or not words[1].isdecimal():
        return False
    if words[3] != socket.gethostname():
        return True
    try:
        os.kill(int(words[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        return True
    with suppress(OSError, IndexError):  # a killed process may be a zombie until its parent notices
        return Path(f"/proc/{words[1]}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True
