"""Reads figures from a run's lines of metrics.jsonl: one by its name, the tasks, the best step, and the progress."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["best_step", "evaluated_tasks", "figure_at", "progress"]


def figure_at(row: Mapping[str, Any], metric: str) -> float | None:
    """Return a figure of one line; None if it has none, or one that is not a finite number."""
    value = row.get(metric)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None


def progress(updates: Sequence[Mapping[str, Any]]) -> tuple[int, float]:
    """Return the last update, 0 before the first, and the wall clock of all updates in seconds, over all parts of a resumed run."""
    return updates[-1]["step"] if updates else 0, sum(row["seconds"] or 0.0 for row in updates)


def best_step(rows: Sequence[Mapping[str, Any]], metric: str) -> int | None:
    """Return the last step at which the figure is highest; None if no line has it."""
    found = [(figure, row["step"]) for row in rows if (figure := figure_at(row, metric)) is not None]
    return max(found)[1] if found else None


def evaluated_tasks(config: Mapping[str, Any], evaluations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the held-out tasks of the settings; then those that only the figures name."""
    named = (name.split("/") for row in evaluations for name in row if name.startswith("eval/"))
    return list(dict.fromkeys([*config.get("eval", {}).get("eval_dataset", {}), *(parts[1] for parts in named if len(parts) == 2)]))
