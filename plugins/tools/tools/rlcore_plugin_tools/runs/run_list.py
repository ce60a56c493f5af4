"""The runs of a folder, a row each. A run with damaged files becomes a row that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlcore.api import ConfigError, UsageError
from rlcore.api.runs import BestFigure, past_runs
from rlcore.api.settings import closest
from rlcore_plugin_tools.run_record import RunRecord
from rlcore_plugin_tools.runs.metric_lines import figure_at, progress
from rlcore_plugin_tools.settings_compared import flat_settings

__all__ = ["RunRow", "named_run", "run_folders", "run_row", "sorted_rows"]

_SECOND = len("20260131-235959")
"""The length of the part of a run folder's name that says when the run began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """The data of one row. ``seconds``: wall clock of its updates; ``problem``: the error of a damaged run, whose state is ``damaged`` and
    whose other fields are empty."""

    folder: Path
    state: str
    step: int = 0
    planned: int | None = None
    best: BestFigure | None = None
    reward: float | None = None
    seconds: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    def as_json(self, differ: Sequence[str]) -> dict[str, Any]:
        """Return plain data; ``differ``: the settings to include."""
        return {
            "run": str(self.folder),
            "name": self.folder.name,
            "project": self.folder.resolve().parent.name,
            "state": self.state,
            "step": self.step,
            "planned": self.planned,
            "best": _best_json(self.best) if self.best else None,
            "reward": self.reward,
            "seconds": round(self.seconds, 3),
            "settings": {path: self.settings[path] for path in differ if path in self.settings},
            "problem": self.problem,
        }


def _best_json(best: BestFigure) -> dict[str, Any]:
    return {"metric": best.name, "value": best.value, "step": best.step}


def run_folders(folder: Path, project: str | None = None) -> list[Path]:
    """Return the runs in a folder of projects or of one project, the newest first; a run folder returns itself. UsageError if there is
    none."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; type rlcore runs FOLDER, with the --run-dir of the runs")
    if project is not None:
        if not (folder / project).is_dir():
            known = sorted(path.name for path in folder.iterdir() if path.is_dir())
            raise UsageError(f"{folder} has no project {project}{closest(project, known)}; it has {', '.join(known) or 'none'}")
        folder = folder / project
    runs = past_runs(folder) or [run for path in sorted(folder.iterdir()) if path.is_dir() for run in past_runs(path)]
    if not runs:
        raise UsageError(f"{folder} has no run; type a folder of runs, which is ./runs unless --run-dir was set")
    return sorted((run.root for run in runs), key=lambda root: root.name[:_SECOND], reverse=True)  # runs of one second keep their order


def named_run(folder: Path) -> RunRecord:
    """Return the run folder that was typed, or the newest run of a project. UsageError if it is neither."""
    if (folder / "run.toml").is_file():
        return RunRecord(folder)
    if folder.is_dir() and (runs := past_runs(folder)):
        return RunRecord(runs[0].root)
    raise UsageError(f"{folder} is neither a run folder nor a project with runs; rlcore runs lists them")


def run_row(folder: Path) -> RunRow:
    """Read the run."""
    try:
        record = RunRecord(folder)
        updates = record.updates()
        step, seconds = progress(updates)
        return RunRow(
            folder=folder,
            state=record.state,
            step=step,
            planned=record.planned_steps,
            best=record.best(),
            reward=figure_at(updates[-1], "reward/mean") if updates else None,
            seconds=seconds,
            settings=flat_settings(record.config),
        )
    except (ConfigError, OSError) as error:
        return RunRow(folder=folder, state="damaged", problem=str(error))
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # complete files with content that no run writes
        return RunRow(folder=folder, state="damaged", problem=f"{folder} has data that no run writes ({type(error).__name__}: {error})")


def sorted_rows(rows: Sequence[RunRow], by: str) -> list[RunRow]:
    """Return sorted rows. ``time``: the newest first, in the given order. ``name`` and ``state``: alphabetically. Figures: the greatest
    first, rows without one last."""
    if by == "time":
        return list(rows)
    if by in ("name", "state"):
        return sorted(rows, key=lambda row: str(row.folder.name if by == "name" else row.state))
    found = [(row, _figure(row, by)) for row in rows]
    known = sorted(((row, figure) for row, figure in found if figure is not None), key=lambda pair: pair[1], reverse=True)
    return [row for row, _ in known] + [row for row, figure in found if figure is None]


def _figure(row: RunRow, name: str) -> float | None:
    if row.problem:
        return None
    if name == "best":
        return None if row.best is None else -row.best.value if row.best.lowest else row.best.value
    return {"step": row.step, "reward": row.reward, "seconds": row.seconds}[name]
