"""Reads the rollouts of a run once for two purposes: the spread of lengths and rewards at each step, and a sample to look at.

A run may have written gigabytes, so both are bounded, evenly over its steps. The rows of a file are kept until the file changes, so a live
page reads only new files.
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
"""The most logged steps that are read; more columns of a figure would be indistinguishable."""
_MOST_EVALUATIONS = 60
_EVALUATION_SHARE = 4
"""Rollouts per answer of an evaluation, at least."""
_COMPLETIONS = 8
"""The most answers to one prompt that are shown of one evaluation."""


@dataclass(frozen=True, slots=True)
class _StepRead:
    """The part of one file that is kept; ``rows`` has at most about ``quota`` rows."""

    mark: tuple[int, int]
    quota: int
    rows: list[dict[str, Any]]
    rewards: list[float]
    lengths: list[float]
    total: int


class RolloutReading:
    """The rollouts of one run. ``characters``: the most characters of one text."""

    def __init__(self, record: RunRecord, characters: int) -> None:
        self._record, self._characters = record, characters
        self._kept: dict[Path, _StepRead] = {}

    def read(self, run: int, table: RolloutTable, most: int, problems: list[str]) -> dict[str, Any]:
        """Add at most ``most`` rollouts, and a quarter as many answers of evaluations, to ``table``. Return the figures that the page shows
        about them: ``spreads``, and the number of rows added and available."""
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
        """Add the answers to the same prompts at every step, so that a reader can compare them."""
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
        """Drop the rows of files that have been removed."""
        self._kept = {path: read for path, read in self._kept.items() if path.exists()}


def _mark(path: Path) -> tuple[int, int]:
    """Return a mark that changes with the content: files are written under another name and then renamed."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_mtime_ns, status.st_ino


def _groups(rows: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in ("source", "prompt_id", "episode", "ordinal")), []).append(row)
    return list(groups.values())


def _some(groups: list[list[dict[str, Any]]], quota: int) -> list[list[dict[str, Any]]]:
    """Return whole groups with about ``quota`` rows together, at least one group, spread over the step."""
    rows = sum(map(len, groups))
    return evenly(groups, max(1, len(groups) * quota // rows)) if rows > quota else groups


def _spread_out(rows: list[dict[str, Any]], quota: int) -> list[dict[str, Any]]:
    """Return such rows, and never more than ``quota``."""
    return [row for group in _some(_groups(rows), quota) for row in group][: max(0, quota)] if rows else []


def _prompts(rows: Iterable[Mapping[str, Any]], most: int) -> set[Any]:
    """Return prompts that have at most ``most`` answers together, at least one prompt."""
    counts: dict[Any, int] = {}
    for row in rows:
        counts[row.get("prompt_id")] = min(_COMPLETIONS, counts.get(row.get("prompt_id"), 0) + 1)
    return set(evenly(list(counts), max(1, most // max(counts.values()))))


def _numbers(rows: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    return [value for row in rows if (value := plain_number(row.get(name))) is not None]
