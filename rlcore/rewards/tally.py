"""Counts what became of judging: metrics since the last look, and the budget for failures."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Sequence

import numpy as np

from rlcore.errors import RewardBudgetError
from rlcore.types import Outcome, Score

__all__ = ["Tally"]

_FAILURES = (Outcome.TIMEOUT, Outcome.ERROR, Outcome.INFRA)
_LEAST = 50
_HOPELESS = 8
_log = logging.getLogger("rlcore")
_WINDOW = 1000


class Tally:
    """Not thread-safe: its owner holds a lock.

    The budget looks at the last 1000 verdicts and says nothing before 50 (8 where every one failed), so that one accident at the start
    stops no run and a judge that breaks late is not hidden behind a long past.
    """

    def __init__(self, names: Sequence[str], budget: float) -> None:
        self._names, self._budget = tuple(names), budget
        self._recent: deque[Outcome] = deque(maxlen=_WINDOW)
        self._example = ""
        self._seconds: dict[str, list[float]] = {name: [] for name in names}
        self._outcomes: dict[str, Counter[Outcome]] = {name: Counter() for name in names}
        self._mixed: Counter[Outcome] = Counter()

    def verdict(self, name: str, scores: Sequence[Score], seconds: float) -> None:
        """One task of the reward ``name`` ended after ``seconds``, with one score per rollout."""
        self._seconds[name].append(seconds)
        for score in scores:
            self._outcomes[name][score.outcome] += 1
            self._recent.append(score.outcome)
            if score.outcome in _FAILURES:
                if not self._example:
                    _log.warning("first failed verdict: reward %s: %s, %s", name, score.outcome.value, score.reason)
                self._example = f"reward {name}: {score.outcome.value}, {score.reason}"

    def mixed(self, scores: Sequence[Score]) -> None:
        """The final scores of one group."""
        self._mixed.update(score.outcome for score in scores)

    def check_budget(self) -> None:
        """Raise RewardBudgetError, with counts and an example, where too much failed."""
        failures = {outcome: count for outcome, count in Counter(self._recent).items() if outcome in _FAILURES}
        failed, seen = sum(failures.values()), len(self._recent)
        hopeless = seen >= _HOPELESS and failed == seen and self._budget < 1.0
        if not hopeless and (seen < _LEAST or failed <= self._budget * seen):
            return
        counts = ", ".join(f"{failures[outcome]} {outcome.value}" for outcome in _FAILURES if outcome in failures)
        raise RewardBudgetError(
            f"{failed} of the last {seen} reward verdicts failed ({counts}), more than schedule.reward_error_budget = {self._budget:g} "
            f"allows; the latest: {self._example}"
        )

    def metrics(self) -> dict[str, float]:
        """Figures since the last call: shares of outcomes of the final scores, seconds per verdict, timeouts; per reward where several."""
        total = sum(self._mixed.values())
        figures = {f"reward/outcome/{outcome.value}": count / total for outcome, count in sorted(self._mixed.items())}
        figures.update(self._latency("reward", [second for name in self._names for second in self._seconds[name]]))
        figures["reward/timeouts"] = float(sum(counts[Outcome.TIMEOUT] for counts in self._outcomes.values()))
        if len(self._names) > 1:
            for name in self._names:
                figures.update(self._of_one(name))
        for name in self._names:
            self._seconds[name].clear()
            self._outcomes[name].clear()
        self._mixed.clear()
        return figures

    def _of_one(self, name: str) -> dict[str, float]:
        counts = self._outcomes[name]
        total = sum(counts.values())
        figures = {f"reward/{name}/outcome/{outcome.value}": count / total for outcome, count in sorted(counts.items())}
        figures.update(self._latency(f"reward/{name}", self._seconds[name]))
        figures[f"reward/{name}/timeouts"] = float(counts[Outcome.TIMEOUT])
        return figures

    @staticmethod
    def _latency(prefix: str, seconds: Sequence[float]) -> dict[str, float]:
        if not seconds:
            return {}
        median, high = np.percentile(np.asarray(seconds), [50, 99])
        return {f"{prefix}/latency_p50": float(median), f"{prefix}/latency_p99": float(high)}
