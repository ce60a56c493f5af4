"""Rows that ``rlcore eval`` writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["answers_of", "rows_of", "tasks_of", "without_seconds"]

_ONLY_EVAL = ("prompt_index", "masked", "cost")


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def answers_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file as a run's own evaluation writes them."""
    return [{name: value for name, value in row.items() if name not in _ONLY_EVAL} for row in rows_of(path)]


def without_seconds(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without what no two evaluations have in common."""
    return [{**row, "cost": {name: value for name, value in row["cost"].items() if name != "seconds"}} for row in rows]


def tasks_of(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``--json`` says of each task, without seconds."""
    return {task: {**found, "cost": {**found["cost"], "answer_seconds": None}} for task, found in told["tasks"].items()}
