"""Reads the rollouts of a run once for two ends: how lengths and rewards spread at each step, and a sample to look at.

A run may have written gigabytes, so both are bounded, evenly over its steps. What was read of a file is kept as long as the file stays as
it is: a page that is shown live reads what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rlcore_plugin_tools.report.distributions import evenly, plain_number, spread
from rlcore_plugin_tools.report.rollout_table import TRAINING, RolloutTable, trimmed
from rlcore_plugin_tools.report.run_figures import tried
from rlcore_plugin_tools.run_record import RunRecord

__all__ = ["RolloutReading"]

_MOST_STEPS = 500
"""Logged steps that are read; there are no more columns in a figure that an eye could tell apart."""
_MOST_EVALUATIONS = 60
_EVALUATION_SHARE = 4
"""Answers of evaluations are at most one for so many rollouts."""
_COMPLETIONS = 8
"""Answers that are shown of one prompt in one evaluation."""


@dataclass(frozen=True, slots=True)
class _StepRead:
    """What is kept of one file: ``rows`` are at most about ``quota``."""

    mark: tuple[int, int]
    quota: int
    rows: list[dict[str, Any]]
    rewards: list[float]
    lengths: list[float]
    total: int


class RolloutReading:
    """Of one run. ``characters``: the most of a text."""

    def __init__(self, record: RunRecord, characters: int) -> None:
        self._record, self._characters = record, characters
        self._kept: dict[Path, _StepRead] = {}

    def read(self, run: int, table: RolloutTable, most: int, problems: list[str]) -> dict[str, Any]:
        """Add at most ``most`` rollouts, and a quarter as many answers of evaluations, to ``table``. What the page says of them:
        ``spreads``, and how many of how many are there."""
        record = self._record
        logged = record.rollout_steps()
        steps = evenly(logged, _MOST_STEPS)
        seen: dict[int, _StepRead] = {}
        shown: set[int] | None = None
        quota = most // max(1, len(steps))
        for step in steps:
            found = tried(problems, partial(self._step, step, quota), None)
            if found is None or not found.total:
                continue
            if shown is None:
                group = len(_groups(found.rows)[0]) if found.rows else 1
                shown = set(evenly(steps, max(1, most // group)))
                quota = most // len(shown)
            seen[step] = found
        added = 0
        for step, found in seen.items():
            rows = _spread_out(found.rows, min(quota, most - added)) if shown and step in shown else []
            for row in rows:
                table.add(run, TRAINING, step, row)
            added += len(rows)
        answers = self._evaluations(run, table, most // _EVALUATION_SHARE, problems)
        self._forget()
        return {
            "rollouts": added,
            "of_rollouts": sum(found.total for found in seen.values()),
            "steps_read": len(seen),
            "steps_logged": len(logged),
            **answers,
            "spreads": {
                "length": spread({step: found.lengths for step, found in seen.items()}),
                "reward": spread({step: found.rewards for step, found in seen.items()}),
            },
        }

    def _step(self, step: int, quota: int) -> _StepRead:
        path = self._record.rollout_file(step)
        known, mark = self._kept.get(path), _mark(path)
        if known is not None and known.mark == mark and known.quota >= min(quota, known.total):
            return known
        rows = list(self._record.rollouts(step))
        kept = [trimmed(row, self._characters) for group in _some(_groups(rows), quota) for row in group]
        sampled = [row for row in rows if row.get("kind", "sampled") == "sampled"]
        read = _StepRead(mark, quota, kept, _numbers(sampled, "reward"), _numbers(sampled, "length"), len(rows))
        self._kept[path] = read
        return read

    def _evaluations(self, run: int, table: RolloutTable, most: int, problems: list[str]) -> dict[str, int]:
        """The same prompts at every step, so that answers can be held against each other."""
        record = self._record
        tasks = record.tasks()
        added = total = 0
        for task in tasks:
            steps = evenly(record.evaluated_steps(task), _MOST_EVALUATIONS)
            wanted: set[Any] | None = None
            for step in steps:
                rows = tried(problems, partial(record.evaluation_rows, task, step), list[dict[str, Any]]())
                total += len(rows)
                if wanted is None and rows:
                    wanted = _prompts(rows, most // len(tasks) // len(steps))
                for row in rows:
                    if row.get("prompt_id") in (wanted or ()) and (row.get("index") or 0) < _COMPLETIONS:
                        table.add(run, task, step, trimmed(row, self._characters))
                        added += 1
        return {"answers": added, "of_answers": total}

    def _forget(self) -> None:
        """What was kept of files that have made room."""
        self._kept = {path: read for path, read in self._kept.items() if path.exists()}


def _mark(path: Path) -> tuple[int, int]:
    """Other for another content: files are written aside and renamed."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_mtime_ns, status.st_ino


def _groups(rows: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row.get("prompt_id"), row.get("episode")), []).append(row)
    return list(groups.values())


def _some(groups: list[list[dict[str, Any]]], quota: int) -> list[list[dict[str, Any]]]:
    """Whole groups with about ``quota`` rows together, one at least, spread over the step."""
    rows = sum(map(len, groups))
    return evenly(groups, max(1, len(groups) * quota // rows)) if rows > quota else groups


def _spread_out(rows: list[dict[str, Any]], quota: int) -> list[dict[str, Any]]:
    """The same of rows, and never more than ``quota``."""
    return [row for group in _some(_groups(rows), quota) for row in group][: max(0, quota)] if rows else []


def _prompts(rows: Iterable[Mapping[str, Any]], most: int) -> set[Any]:
    """Prompts whose answers are at most ``most``, one at least."""
    counts: dict[Any, int] = {}
    for row in rows:
        counts[row.get("prompt_id")] = min(_COMPLETIONS, counts.get(row.get("prompt_id"), 0) + 1)
    return set(evenly(list(counts), max(1, most // max(counts.values()))))


def _numbers(rows: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    return [value for row in rows if (value := plain_number(row.get(name))) is not None]
