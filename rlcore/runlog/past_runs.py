"""Find existing runs, and the checkpoint from which each can resume."""

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
    """A run ended before its first checkpoint: the folder of its checkpoints exists and has none."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """An existing run folder: ``root`` holds its ``run.toml``."""

    root: Path

    @property
    def finished(self) -> int | None:
        """The number of updates that it made, if it reached its end; None if it died or was interrupted."""
        try:
            summary = json_document(self.root / "summary.json")
            return None if summary["interrupted"] else int(summary["steps"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self.root / 'summary.json'} is damaged ({error}); remove it, and the run counts as unfinished") from None

    @property
    def stopped(self) -> str:
        """The reason why controllers ended it, "" if they did not. Only of a finished run."""
        return str(json_document(self.root / "summary.json").get("stopped", ""))

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints: in the run folder, or in the place that ``-sd`` names."""
        with (self.root / "run.toml").open("rb") as file:
            moved = tomllib.load(file).get("log", {}).get("save_dir")
        return RunFolder.at(self.root, save_dir=Path(moved) if moved else None, eval_save_dir=None, rollout_save_dir=None).checkpoints


def past_runs(folder: Path) -> list[PastRun]:
    """Return the runs of a project (a folder of run folders), the newest first. For a run folder, return the run itself."""
    if _is_run(folder / "run.toml"):
        return [PastRun(folder)]
    return [PastRun(path.parent) for path in sorted(filter(_is_run, folder.glob("*/run.toml")), key=_age, reverse=True)]


def _is_run(settings: Path) -> bool:
    """Return whether ``settings`` belongs to a run. A settings file that a user wrote may also be called ``run.toml``."""
    return settings.is_file() and any((settings.parent / beside).exists() for beside in ("manifest.json", "checkpoints"))


def _age(path: Path) -> tuple[str, int]:
    """Return when a run began, in seconds, from the name of its folder; for the same second, when its settings were written."""
    return path.parent.name[: len("20260131-235959")], path.stat().st_mtime_ns


def find_checkpoint(run: Path, step: int | None = None, say: Callable[[str], None] = lambda text: None) -> ResumePoint:
    """Return the newest complete checkpoint of a run, after reading all of its bytes.

    With ``step``, return that checkpoint. Raises ConfigError if it is damaged, or if it does not exist (with the steps that do). Raises
    NoCheckpointError if the folder of checkpoints is empty. Raises ConfigError if that folder is absent (a disk that is not mounted) or
    has no complete checkpoint.

    :param say: receives a warning about each newer checkpoint that is damaged."""
    folder = PastRun(run).checkpoints
    if not folder.is_dir():  # a run creates it before anything else
        raise ConfigError(
            f"{run} cannot be resumed, because the folder of its checkpoints, {folder}, is absent: mount or restore it, or begin a new "
            f"run: rlcore train {run / 'run.toml'}"
        )
    steps = checkpoint_steps(folder)
    if step is not None and step in steps:
        verify(folder / f"step-{step}")
        return _point(run, folder, step)
    if step is not None:
        there = f"there are steps {', '.join(map(str, steps))}" if steps else "it has none at all"
        raise ConfigError(f"{run} has no checkpoint of step {step}: {there}")
    if not steps:
        raise NoCheckpointError(
            f"{run} ended before its first checkpoint ({folder} has none), so it cannot be resumed; begin a new run: rlcore train "
            f"{run / 'run.toml'}"
        )
    for known in reversed(steps):
        try:
            verify(folder / f"step-{known}")
            return _point(run, folder, known)
        except ConfigError as error:
            last = f"the checkpoint of step {known} cannot be used: {error}"
            say(f"warning: {last}")
    raise ConfigError(f"{run} cannot be resumed, because none of its {len(steps)} checkpoints is complete; {last}")


def _point(run: Path, folder: Path, step: int) -> ResumePoint:
    checkpoint = folder / f"step-{step}"
    state = _values(checkpoint / "state.json", {"coordinator": dict, "watch": dict})
    _values(checkpoint / "trainer" / "consumer.json", {"backend": str, "skipped_steps": int})
    return ResumePoint(run=run, checkpoint=checkpoint, step=step, state=state)


def _values(path: Path, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return a JSON object that has the given values with the given types. Raises ConfigError otherwise."""
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
    raise ConfigError(f"{path} is damaged, or another version of rlcore wrote it ({problem}); no run can resume from it")
