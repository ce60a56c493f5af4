"""Counts verdicts as they come: number, share, value, accuracy and latency by outcome; the slowest; the first failure."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlcore.api import Outcome
from rlcore_plugin_tools.score.group_figures import GroupFigures
from rlcore_plugin_tools.score.items import TextVerdict

__all__ = ["OutcomeFigures", "ScoreSummary"]

_NAMED = 3


@dataclass(slots=True)
class OutcomeFigures:
    """The figures of one outcome. ``counted``: verdicts that are about the text; ``seconds``: of every verdict that reached a reward."""

    count: int = 0
    counted: int = 0
    value: float = 0.0
    accuracy: float = 0.0
    with_accuracy: int = 0
    seconds: array[float] = field(default_factory=lambda: array("d"))

    def add(self, verdict: TextVerdict) -> None:
        """Add one verdict."""
        self.count += 1
        self.counted += verdict.counts
        self.value += verdict.score.value if verdict.counts else 0.0
        if verdict.counts and verdict.score.accuracy is not None:
            self.accuracy += verdict.score.accuracy
            self.with_accuracy += 1
        if verdict.seconds is not None:
            self.seconds.append(verdict.seconds)

    def as_json(self, total: int) -> dict[str, Any]:
        """Return the figures of this outcome among ``total`` verdicts; null if there is none."""
        p50, p99 = _percentiles(self.seconds)
        return {
            "count": self.count,
            "share": self.count / total,
            "mean_value": self.value / self.counted if self.counted else None,
            "accuracy": self.accuracy / self.with_accuracy if self.with_accuracy else None,
            "latency_p50": p50,
            "latency_p99": p99,
        }


class ScoreSummary:
    """The summary of a scored file. The clock runs from the creation of the object to ``stop``."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.by_outcome: dict[Outcome, OutcomeFigures] = {}
        self.slowest: TextVerdict | None = None
        self.invalid_reasons: list[str] = []
        self.first_failure = self.first_masked = ""
        self.masked = 0
        """Verdicts of a reward that reports that it does not apply."""
        self.first_trace = ""
        self.groups = GroupFigures()
        self.lines = 0
        """Rows of the file; each may have several completions."""
        self._line = 0
        self._started = time.perf_counter()
        self._seconds: float | None = None

    @property
    def rows(self) -> int:
        """The number of verdicts so far."""
        return sum(figures.count for figures in self.by_outcome.values())

    @property
    def judged(self) -> int:
        """The number of those that are about the text."""
        return sum(figures.counted for figures in self.by_outcome.values())

    @property
    def invalid(self) -> int:
        """The number of those whose row cannot be judged."""
        return self.by_outcome[Outcome.INVALID].count if Outcome.INVALID in self.by_outcome else 0

    @property
    def all_failed(self) -> bool:
        """Whether rows reached a reward and it judged none of them."""
        return self.judged == 0 and self.rows > self.invalid

    @property
    def seconds(self) -> float:
        """Seconds since the start, or until ``stop``."""
        return time.perf_counter() - self._started if self._seconds is None else self._seconds

    def add(self, verdict: TextVerdict) -> None:
        """Count one verdict."""
        self.lines += verdict.line != self._line
        self._line = verdict.line
        self.groups.add(verdict)
        outcome = verdict.score.outcome
        self.by_outcome.setdefault(outcome, OutcomeFigures()).add(verdict)
        if verdict.seconds is not None and (self.slowest is None or verdict.seconds > (self.slowest.seconds or 0.0)):
            self.slowest = verdict
        if outcome is Outcome.INVALID and len(self.invalid_reasons) < _NAMED:
            self.invalid_reasons.append(verdict.score.reason or verdict.source)
        elif outcome.judged and not verdict.counts:
            self.masked += 1
            self.first_masked = self.first_masked or f"{verdict.source}: masked: {verdict.score.reason}"
        elif not outcome.judged and outcome is not Outcome.INVALID and not self.first_failure:
            self.first_failure = f"{verdict.source}: {outcome.value}: {verdict.score.reason}"
        self.first_trace = self.first_trace or verdict.trace

    def stop(self) -> None:
        """Stop the clock after the last verdict."""
        self._seconds = self.seconds

    def as_json(self) -> dict[str, Any]:
        """Return plain values; figures that do not exist are null."""
        total, judged = self.rows, [figures for outcome, figures in self.by_outcome.items() if outcome.judged]
        with_accuracy = sum(figures.with_accuracy for figures in judged)
        p50, p99 = _percentiles([second for figures in self.by_outcome.values() for second in figures.seconds])
        slowest = self.slowest
        return {
            "rows": total,
            "judged": self.judged,
            "masked": self.masked,
            "mean_value": sum(figures.value for figures in judged) / self.judged if self.judged else None,
            "accuracy": sum(figures.accuracy for figures in judged) / with_accuracy if with_accuracy else None,
            "outcomes": {o.value: self.by_outcome[o].as_json(total) for o in Outcome if o in self.by_outcome},
            "latency_p50": p50,
            "latency_p99": p99,
            "seconds": self.seconds,
            "rows_per_second": total / max(self.seconds, 1e-9),
            "workers": self.workers,
            "slowest": None if slowest is None else {"line": slowest.line, "completion": slowest.place, "seconds": slowest.seconds},
            "groups": self.groups.as_json(),
            "invalid": list(self.invalid_reasons),
            "first_failure": self.first_failure or None,
            "first_traceback": self.first_trace or None,
        }


def _percentiles(seconds: Sequence[float]) -> tuple[float | None, float | None]:
    if not len(seconds):
        return None, None
    p50, p99 = np.percentile(np.asarray(seconds), [50, 99])
    return float(p50), float(p99)
