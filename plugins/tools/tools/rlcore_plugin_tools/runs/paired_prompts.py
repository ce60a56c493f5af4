"""The same prompts answered by two runs: the mean of the differences is more exact than the difference of two means."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.api import Outcome
from rlcore_plugin_tools.run_record import RunRecord
from rlcore_plugin_tools.runs.intervals import Interval, mean_interval

__all__ = ["PairedPrompts", "paired_prompts"]

_FEWEST = 2
_JUDGED = frozenset(outcome.value for outcome in Outcome if outcome.judged)


@dataclass(frozen=True, slots=True)
class PairedPrompts:
    """``difference``: second minus first, over prompts that both answered; ``differing``: the number of prompts whose accuracies differ."""

    difference: Interval
    differing: int

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**self.difference.as_json(), "differing": self.differing}


def paired_prompts(first: RunRecord, second: RunRecord, task: str, step: int) -> PairedPrompts | None:
    """Return each prompt's accuracy (mean over its completions) in the second run minus that in the first, at one step. Prompts are the
    same if id, text and gold answer are equal; None if fewer than two are."""
    before, after = (_accuracies(record, task, step) for record in (first, second))
    differences = [math.fsum(after[key]) / len(after[key]) - math.fsum(before[key]) / len(before[key]) for key in before if key in after]
    if len(differences) < _FEWEST:
        return None
    return PairedPrompts(mean_interval(differences), sum(difference != 0 for difference in differences))


def _accuracies(record: RunRecord, task: str, step: int) -> dict[str, list[float]]:
    """Return prompt -> accuracy of each of its judged completions."""
    found: dict[str, list[float]] = {}
    for row in record.evaluation_rows(task, step):
        accuracy = row.get("ans_valid")
        if isinstance(accuracy, int | float) and row.get("outcome") in _JUDGED:
            found.setdefault(_identity(row), []).append(float(accuracy))
    return found


def _identity(row: Mapping[str, Any]) -> str:
    return json.dumps([row.get("prompt_id"), row.get("prompt"), row.get("gold")], sort_keys=True)
