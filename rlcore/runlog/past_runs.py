"""Runs that are there, and from which checkpoint each can go on."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.contracts.errors import ConfigError, UsageError
from rlcore.contracts.resume_point import ResumePoint
from rlcore.host.bounded_reading import json_document
from rlcore.runlog.checkpoint import checkpoint_steps, verify
from rlcore.runlog.folder import RunFolder

__all__ = ["NoCheckpointError", "PastRun", "find_checkpoint", "past_runs"]


class NoCheckpointError(UsageError):
    """A run ended before its first checkpoint: the folder for them is there and has none."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run folder that is there: ``root`` holds its ``run.toml``."""

    root: Path

    @property
    def finished(self) -> int | None:
        """The updates that it made, if it came to its own end; None if it died or was interrupted."""
        try:
            summary = json_document(self.root / "summary.json")
            return None if summary["interrupted"] else int(summary["steps"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self.root / 'summary.json'} is damaged ({error}); remove it, and the run counts as unfinished") from None

    @property
    def checkpoints(self) -> Path:
        """Where its checkpoints are: in the run folder, or where ``-sd`` moved them."""
        with (self.root / "run.toml").open("rb") as file:
            moved = tomllib.load(file).get("log", {}).get("save_dir")
        return RunFolder.at(self.root, save_dir=Path(moved) if moved else None, eval_save_dir=None, rollout_save_dir=None).checkpoints


def past_runs(folder: Path) -> list[PastRun]:
    """The runs of a project (a folder of run folders), the newest first; of a run folder the run itself."""
    if _is_run(folder / "run.toml"):
        return [PastRun(folder)]
    return [PastRun(path.parent) for path in sorted(filter(_is_run, folder.glob("*/run.toml")), key=_age, reverse=True)]


def _is_run(settings: Path) -> bool:
    """A file of settings that a user wrote may be called ``run.toml`` too."""
    return settings.is_file() and any((settings.parent / beside).exists() for beside in ("manifest.json", "checkpoints"))


def _age(path: Path) -> tuple[str, int]:
    """When a run began, to the second, from the name of its folder; of the same second, when its settings were written."""
    return path.parent.name[: len("20260131-235959")], path.stat().st_mtime_ns


def find_checkpoint(run: Path, step: int | None = None, say: Callable[[str], None] = lambda text: None) -> ResumePoint:
    """The newest checkpoint of a run that is whole; ``say`` is told of each newer one that is damaged, and why. Reads all of its bytes.

    With ``step`` that one: raises ConfigError if it is damaged, and if it is not there, with the steps that are. Raises
    NoCheckpointError if
    the folder of its checkpoints has none, ConfigError if that folder is absent (a disk that is not mounted) or has none that is whole."""
    folder = PastRun(run).checkpoints
    if not folder.is_dir():  # a run makes it before anything else
        raise ConfigError(
            f"{run} cannot go on, for the folder of its checkpoints, {folder}, is absent: mount or restore it, or begin a new run: "
            f"rlcore train {run / 'run.toml'}"
        )
    steps = checkpoint_steps(folder)
    if step is not None and step in steps:
        verify(folder / f"step-{step}")
        return _point(run, folder, step)
    if step is not None:
        there = f"there are steps {', '.join(map(str, steps))}" if steps else "there is none at all"
        raise ConfigError(f"{run} has no checkpoint of step {step}: {there}")
    if not steps:
        raise NoCheckpointError(
            f"{run} ended before its first checkpoint ({folder} has none), so it cannot go on; begin a new run: "
            f"rlcore train {run / 'run.toml'}"
        )
    for known in reversed(steps):
        try:
            verify(folder / f"step-{known}")
            return _point(run, folder, known)
        except ConfigError as error:
            last = f"the checkpoint of step {known} cannot be used: {error}"
            say(f"warning: {last}")
    raise ConfigError(f"{run} cannot go on, for none of its {len(steps)} checkpoints is whole; {last}")


def _point(run: Path, folder: Path, step: int) -> ResumePoint:
    checkpoint = folder / f"step-{step}"
    state = _values(checkpoint / "state.json", {"coordinator": dict, "watch": dict})
    _values(checkpoint / "trainer" / "consumer.json", {"backend": str, "skipped_steps": int})
    return ResumePoint(run=run, checkpoint=checkpoint, step=step, state=state)


def _values(path: Path, kinds: Mapping[str, type]) -> dict[str, Any]:
    """A JSON object that has these values of these kinds."""
    try:
        found: dict[str, Any] = json_document(path)
        lacking = [name for name, kind in kinds.items() if not isinstance(found[name], kind)]
    except FileNotFoundError:
        problem = "it is absent"
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        if not lacking:
            return found
        problem = f"its {' and '.join(lacking)} cannot be understood"
    raise ConfigError(f"{path} is damaged, or another version of rlcore wrote it ({problem}); no run can go on from there")
