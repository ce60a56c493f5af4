"""Counts of verdicts that add up: over the judges of several nodes, and over several reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlcore.contracts.types import Outcome

__all__ = ["RewardCounts", "VerdictCounts"]


@dataclass(frozen=True, slots=True)
class RewardCounts:
    """The verdicts of one reward: how many of each outcome, and the seconds of each call."""

    outcomes: Counter[Outcome]
    seconds: tuple[float, ...]

    def __add__(self, other: RewardCounts) -> RewardCounts:
        """Both together."""
        return RewardCounts(self.outcomes + other.outcomes, self.seconds + other.seconds)


@dataclass(frozen=True, slots=True)
class VerdictCounts:
    """Verdict counts by reward; ``mixed`` counts the outcomes of final scores.

    Shares and percentiles are computed from the sum: neither the mean of two shares nor that of two medians is that of both together.
    """

    rewards: dict[str, RewardCounts]
    mixed: Counter[Outcome]

    def __add__(self, other: VerdictCounts) -> VerdictCounts:
        """Both together."""
        nothing = RewardCounts(Counter(), ())
        names = dict.fromkeys([*self.rewards, *other.rewards])
        rewards = {name: self.rewards.get(name, nothing) + other.rewards.get(name, nothing) for name in names}
        return VerdictCounts(rewards, self.mixed + other.mixed)

    def figures(self) -> dict[str, float]:
        """``reward/outcome/<outcome>`` (shares of the final scores), ``reward/latency_p50`` and ``_p99`` (seconds a call),
        ``reward/timeouts`` (a count); the same of each reward under ``reward/<name>/`` where there are several."""
        figures = _shares("reward", self.mixed)
        figures |= _latency("reward", [second for one in self.rewards.values() for second in one.seconds])
        figures["reward/timeouts"] = float(sum(one.outcomes[Outcome.TIMEOUT] for one in self.rewards.values()))
        if len(self.rewards) > 1:
            for name, one in self.rewards.items():
                figures |= _shares(f"reward/{name}", one.outcomes) | _latency(f"reward/{name}", one.seconds)
                figures[f"reward/{name}/timeouts"] = float(one.outcomes[Outcome.TIMEOUT])
        return figures


def _shares(prefix: str, outcomes: Counter[Outcome]) -> dict[str, float]:
    total = outcomes.total()
    return {f"{prefix}/outcome/{outcome.value}": count / total for outcome, count in sorted(outcomes.items())}


def _latency(prefix: str, seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    median, high = np.percentile(np.asarray(seconds), [50, 99])
    return {f"{prefix}/latency_p50": float(median), f"{prefix}/latency_p99": float(high)}
