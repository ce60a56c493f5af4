"""The same prompts answered by two runs: the mean of the differences is more exact than the difference of two means."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.api import Outcome
from rlcore_plugin_tools.run_record import RunRecord
from rlcore_plugin_tools.runs.evaluation_record import EvaluationRecord
from rlcore_plugin_tools.runs.intervals import Interval, mean_interval

__all__ = ["PairedPrompts", "has_pairs", "paired_prompts"]

_FEWEST = 2
_COST = "cost/"
_VERDICTS = {"": "ans_valid", "reward": "reward"}
"""Fields of a row by the figure of the task that is their mean."""
_JUDGED = frozenset(outcome.value for outcome in Outcome if outcome.judged)

Evaluated = RunRecord | EvaluationRecord


@dataclass(frozen=True, slots=True)
class PairedPrompts:
    """``difference``: second minus first, over prompts that both answered; ``differing``: the number of prompts whose accuracies differ."""

    difference: Interval
    differing: int

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**self.difference.as_json(), "differing": self.differing}


def paired_prompts(first: Evaluated, second: Evaluated, task: str, steps: tuple[int, int], name: str = "") -> PairedPrompts | None:
    """Return each prompt's figure (mean over its completions) in the second run minus that in the first, each at its own step. Prompts are
    the same if id, text and gold answer are equal; None if fewer than two are, or if no row has the figure.

    :param name: "" for the accuracy, "reward", or "cost/calls" and so on; see ``has_pairs``.
    """
    before, after = (_values(record, task, step, name) for record, step in zip((first, second), steps, strict=True))
    differences = [math.fsum(after[key]) / len(after[key]) - math.fsum(before[key]) / len(before[key]) for key in before if key in after]
    if len(differences) < _FEWEST:
        return None
    return PairedPrompts(mean_interval(differences), sum(difference != 0 for difference in differences))


def has_pairs(name: str) -> bool:
    """Return whether rows have this figure of a task, so that prompts can be paired."""
    return name in _VERDICTS or name.startswith(_COST)


def _values(record: Evaluated, task: str, step: int, name: str) -> dict[str, list[float]]:
    """Return prompt -> the figure of each of its completions. Verdicts of masked completions do not count; their cost does."""
    found: dict[str, list[float]] = {}
    for row in record.evaluation_rows(task, step):
        value = _value(row, name)
        if isinstance(value, int | float):
            found.setdefault(_identity(row), []).append(float(value))
    return found


def _value(row: Mapping[str, Any], name: str) -> object:
    if name.startswith(_COST):
        return row.get("cost", {}).get(name.removeprefix(_COST))
    return row.get(_VERDICTS[name]) if row.get("outcome") in _JUDGED and not row.get("masked") else None


def _identity(row: Mapping[str, Any]) -> str:
    return json.dumps([row.get("prompt_id"), row.get("prompt"), row.get("gold")], sort_keys=True)
