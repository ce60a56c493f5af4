"""Count the results of scoring: verdicts since the last call, failures against their budgets, and the first exceptions of each reward."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcore.contracts.errors import RewardBudgetError
from rlcore.contracts.types import Outcome, Score

__all__ = ["JudgeCounts", "JudgeStats", "RewardCounts"]

_FAILURES = (Outcome.TIMEOUT, Outcome.ERROR, Outcome.INFRA)
_LEAST = 50
_HOPELESS = 8
_WINDOW = 1000
_FAULTS = 10  # exceptions kept for each reward, each raised at a different place
_FAULT_TEXT = 2000
_log = logging.getLogger("rlcore")


@dataclass(frozen=True, slots=True)
class RewardCounts:
    """The verdicts of one reward: the count of each outcome, and the seconds of each call."""

    outcomes: Counter[Outcome]
    seconds: tuple[float, ...]

    def __add__(self, other: RewardCounts) -> RewardCounts:
        """Return the sum of both."""
        return RewardCounts(self.outcomes + other.outcomes, self.seconds + other.seconds)


@dataclass(frozen=True, slots=True)
class JudgeCounts:
    """DeliveryStatus counts by reward; ``mixed`` counts the outcomes of final scores.

    Shares and percentiles are computed from the sum, because they cannot be averaged over two sets of counts.
    """

    rewards: dict[str, RewardCounts]
    mixed: Counter[Outcome]

    def __add__(self, other: JudgeCounts) -> JudgeCounts:
        """Return the sum of both."""
        nothing = RewardCounts(Counter(), ())
        names = dict.fromkeys([*self.rewards, *other.rewards])
        rewards = {name: self.rewards.get(name, nothing) + other.rewards.get(name, nothing) for name in names}
        return JudgeCounts(rewards, self.mixed + other.mixed)

    def figures(self) -> dict[str, float]:
        """Return the figures by metric name.

        ``reward/outcome/<outcome>`` are shares of the final scores, ``reward/latency_p50`` and ``_p99`` are seconds per call, and
        ``reward/timeouts`` is a count. If there are several rewards, the same figures of each are under ``reward/<name>/``."""
        figures = _shares("reward", self.mixed)
        figures |= _latency("reward", [second for one in self.rewards.values() for second in one.seconds])
        figures["reward/timeouts"] = float(sum(one.outcomes[Outcome.TIMEOUT] for one in self.rewards.values()))
        if len(self.rewards) > 1:
            for name, one in self.rewards.items():
                figures |= _shares(f"reward/{name}", one.outcomes) | _latency(f"reward/{name}", one.seconds)
                figures[f"reward/{name}/timeouts"] = float(one.outcomes[Outcome.TIMEOUT])
        return figures


class JudgeStats:
    """Counts verdicts and checks budgets. Not thread-safe: its owner holds a lock.

    A budget covers the last 1000 verdicts and is not checked before 50 (8 if all of them failed). So one early accident does not stop a
    run, and a long history does not hide a reward that breaks late. A budget of 0 allows no failure, from the first verdict on.

    :param names: the rewards.
    :param budget: the share of all verdicts on the prompts of one source that may fail.
    :param budgets: by reward, the share of its own verdicts that may end with an outcome.
    :param sources: the names of the sources, () if the run has one.
    """

    def __init__(
        self,
        names: Sequence[str],
        budget: float,
        budgets: Mapping[str, Mapping[Outcome, float]] | None = None,
        sources: Sequence[str] = (),
    ) -> None:
        self._sources = tuple(sources)
        self._names, self._budget, self._budgets = tuple(names), budget, dict(budgets or {})
        self._recent: dict[int, deque[Outcome]] = {}
        """By source, so that a source that always fails does not hide behind the others."""
        self._recent_of: dict[str, deque[Outcome]] = {name: deque(maxlen=_WINDOW) for name in names}
        self._example: dict[int, str] = {}
        self._examples: dict[tuple[str, Outcome], str] = {}
        self._seconds: dict[str, list[float]] = {name: [] for name in names}
        self._outcomes: dict[str, Counter[Outcome]] = {name: Counter() for name in names}
        self._mixed: Counter[Outcome] = Counter()
        self._faulty_places: dict[str, set[str]] = {name: set() for name in names}
        self._faults: list[dict[str, Any]] = []

    def verdict(self, name: str, scores: Sequence[Score], seconds: float, source: int = 0) -> None:
        """Count one finished task of the reward ``name``, which took ``seconds``, with one score per rollout of a source's prompt."""
        self._seconds[name].append(seconds)
        recent = self._recent.setdefault(source, deque(maxlen=_WINDOW))
        for score in scores:
            self._outcomes[name][score.outcome] += 1
            recent.append(score.outcome)
            self._recent_of[name].append(score.outcome)
            if score.outcome in _FAILURES:
                if source not in self._example:
                    _log.warning("first failed verdict: reward %s: %s, %s", name, score.outcome.value, score.reason)
                self._example[source] = f"reward {name}: {score.outcome.value}, {score.reason}"
                self._examples[name, score.outcome] = score.reason

    def mixed(self, scores: Sequence[Score]) -> None:
        """Count the final scores of one group."""
        self._mixed.update(score.outcome for score in scores)

    def fault(self, name: str, *, row: str, reason: str, trace: str, text: str) -> None:
        """Record that the reward ``name`` raised on the response ``text`` to ``row``, unless it has raised at this place before."""
        known = self._faulty_places[name]
        # Only the frames, without text that varies between responses.
        place = "\n".join(line for line in trace.splitlines() if line.startswith("  File "))
        if place not in known and len(known) < _FAULTS:
            known.add(place)
            self._faults.append({"reward": name, "row": row, "reason": reason, "traceback": trace, "text": text[:_FAULT_TEXT]})

    def take_faults(self) -> list[dict[str, Any]]:
        """Return the exceptions recorded since the last call, with their tracebacks, as rows of a JSONL file."""
        faults, self._faults = self._faults, []
        return faults

    def check_budget(self) -> None:
        """Raise RewardBudgetError, with counts, an example and the setting to change, if too many verdicts failed."""
        for name, shares in self._budgets.items():
            self._check_shares(name, shares)
        for source, recent in self._recent.items():
            failures = {outcome: count for outcome, count in Counter(recent).items() if outcome in _FAILURES}
            failed, seen = sum(failures.values()), len(recent)
            if _exceeds(failed, seen, self._budget):
                counts = ", ".join(f"{failures[outcome]} {outcome.value}" for outcome in _FAILURES if outcome in failures)
                raise RewardBudgetError(
                    f"{failed} of the last {seen} reward verdicts {self._of(source)}failed ({counts}), more than "
                    f"schedule.reward_error_budget = {self._budget:g} allows; the latest: {self._example[source]}; fix the reward, or "
                    "raise --reward-error-budget"
                )

    def _of(self, source: int) -> str:
        return f"of source {self._sources[source]} " if self._sources else ""

    def _check_shares(self, name: str, shares: Mapping[Outcome, float]) -> None:
        recent = self._recent_of[name]
        for outcome, share in shares.items():
            failed = recent.count(outcome)
            if _exceeds(failed, len(recent), share):
                raise RewardBudgetError(
                    f"{failed} of the last {len(recent)} verdicts of reward {name} ended with {outcome.value}, more than its budget = {{ "
                    f"{outcome.value} = {share:g} }} allows; the latest: {self._examples[name, outcome]}; fix the reward, or raise "
                    f"{outcome.value} in budget of its [[rewards]]"
                )

    def take(self) -> JudgeCounts:
        """Return the counts since the last call."""
        rewards = {name: RewardCounts(self._outcomes[name].copy(), tuple(self._seconds[name])) for name in self._names}
        counts = JudgeCounts(rewards, self._mixed.copy())
        for name in self._names:
            self._seconds[name].clear()
            self._outcomes[name].clear()
        self._mixed.clear()
        return counts


def _exceeds(failed: int, seen: int, budget: float) -> bool:
    """Return whether ``failed`` of ``seen`` exceeds the share, and enough verdicts were seen to decide."""
    if not failed:
        return False
    hopeless = seen >= _HOPELESS and failed == seen and budget < 1.0
    return hopeless or budget == 0 or (seen >= _LEAST and failed > budget * seen)


def _shares(prefix: str, outcomes: Counter[Outcome]) -> dict[str, float]:
    total = outcomes.total()
    return {f"{prefix}/outcome/{outcome.value}": count / total for outcome, count in sorted(outcomes.items())}


def _latency(prefix: str, seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    median, high = np.percentile(np.asarray(seconds), [50, 99])
    return {f"{prefix}/latency_p50": float(median), f"{prefix}/latency_p99": float(high)}
