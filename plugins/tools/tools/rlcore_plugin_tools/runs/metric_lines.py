"""Figures of a run's lines of metrics.jsonl: read one by its name, name the tasks, find the best step, say how far it came."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["best_step", "evaluated_tasks", "figure_at", "progress"]


def figure_at(row: Mapping[str, Any], metric: str) -> float | None:
    """A figure of one line; None if it has none, or one that is no number."""
    value = row.get(metric)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None


def progress(updates: Sequence[Mapping[str, Any]]) -> tuple[int, float]:
    """The last update, 0 before the first; and the wall clock of all, in seconds, of all parts of a run that was resumed."""
    return updates[-1]["step"] if updates else 0, sum(row["seconds"] or 0.0 for row in updates)


def best_step(rows: Sequence[Mapping[str, Any]], metric: str) -> int | None:
    """The last step at which the figure is at its highest; None if no line has it."""
    found = [(figure, row["step"]) for row in rows if (figure := figure_at(row, metric)) is not None]
    return max(found)[1] if found else None


def evaluated_tasks(config: Mapping[str, Any], evaluations: Sequence[Mapping[str, Any]]) -> list[str]:
    """The held-out tasks of the settings; then those that only the figures name."""
    named = (name.split("/") for row in evaluations for name in row if name.startswith("eval/"))
    return list(dict.fromkeys([*config.get("eval", {}).get("eval_dataset", {}), *(parts[1] for parts in named if len(parts) == 2)]))
