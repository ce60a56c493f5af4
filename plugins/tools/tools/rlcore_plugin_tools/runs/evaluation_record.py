"""What ``rlcore eval`` wrote, read as a run that was evaluated once: the file of ``--out``, or the object that ``--json`` printed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from rlcore.api import ConfigError, UsageError
from rlcore.api.runs import json_document
from rlcore_plugin_tools.eval.part_file import summary_path
from rlcore_plugin_tools.run_record import json_rows

__all__ = ["EvaluationRecord", "is_evaluation"]


def is_evaluation(path: Path) -> bool:
    """Return whether ``rlcore eval`` wrote this file."""
    return path.is_file() and (summary_path(path).is_file() or _told(path) is not None)


def _told(path: Path) -> Mapping[str, Any] | None:
    """Return the object that ``rlcore eval --json`` printed; None if the file has something else."""
    try:
        told = json_document(path)
    except ValueError:
        return None
    return told if isinstance(told, dict) and {"tasks", "evaluation", "out"} <= told.keys() else None


class EvaluationRecord:
    """An evaluation, with what a comparison needs of a ``RunRecord``. ConfigError, which names the file, if it is damaged; UsageError if it
    is another file."""

    state = "evaluation"
    planned_steps = None

    def __init__(self, path: Path) -> None:
        self.root = path
        summary = summary_path(path)
        told = _told(summary if summary.is_file() else path)
        if told is None and summary.is_file():
            raise ConfigError(f"{summary} is damaged; evaluate again")
        if told is None:
            raise UsageError(f"{path} is neither a run folder nor a file that rlcore eval wrote with --out or --json")
        out = told["out"]
        self._rows = path if summary.is_file() else None if out is None else next(filter(Path.is_file, _places(path, Path(out))), None)
        try:
            self.step: int | None = None if told["step"] is None else int(told["step"])
            self.seconds = float(told["seconds"])
            self.config: Mapping[str, Any] = dict(told["evaluation"]["settings"])
            self._figures = {name: value for task, found in told["tasks"].items() for name, value in _figures(task, found).items()}
            known = told["evaluation"]
            self.manifest: dict[str, Any] = {**known["versions"], "plugins": known["plugins"], "data": known["data"]}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path} is not what rlcore eval writes ({type(error).__name__}: {error}); evaluate again") from None

    def updates(self) -> list[dict[str, Any]]:
        """Return nothing: nothing was trained."""
        return []

    def evaluations(self) -> list[dict[str, Any]]:
        """Return the figures of all tasks. The step is that of the checkpoint; 0 for a model that is none."""
        return [{"step": self.step or 0, **self._figures}]

    def evaluation_rows(self, task: str, step: int) -> list[dict[str, Any]]:
        """Return one row per completion of a task; [] if the file of rows is not there."""
        return self._by_task.get(task, [])

    @cached_property
    def _by_task(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for row in () if self._rows is None else json_rows(self._rows):
            found.setdefault(str(row.get("task")), []).append(row)
        return found


def _places(path: Path, out: Path) -> tuple[Path, ...]:
    """Return where the rows may be: as typed, or beside the file, because both may have been moved."""
    return out, path.with_name(out.name)


def _figures(task: str, found: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a task, with what an answer costs in the mean, and the number of answers without a verdict."""
    cost, answers = found["cost"], found["completions"]
    seconds = cost["answer_seconds"]
    costs = {name: cost[name] / answers for name in ("calls", "prompt_tokens", "sampled_tokens")} if answers else {}
    costs |= {"seconds": seconds["mean"]} if seconds else {}
    of_cost = {f"eval/{task}/cost/{name}": value for name, value in costs.items()}
    return {**found["figures"], f"eval/{task}/failed": float(found["failed"]), **of_cost}
