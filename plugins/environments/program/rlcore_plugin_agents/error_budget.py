"""The share of episodes that may fail by the fault of their environment, and what the user hears of failures."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from rlcore.api.runtime import RewardBudgetError

__all__ = ["ErrorBudget"]

_WINDOW, _LEAST, _HOPELESS = 200, 40, 8
_WORDS = {
    "timeout": "an episode was too late",
    "crashed": "an agent crashed in its episode",
    "environment": "an environment failed in an episode",
    "lost": "an episode was lost twice with a process that it needed",
}
"""Outcomes of episodes that did not come to their end."""


class ErrorBudget:
    """Counts the outcomes of the latest episodes of one environment."""

    def __init__(self, environment: str, share: float, say: Callable[[str], None]) -> None:
        self._environment, self._share, self._say = environment, share, say
        self._recent: deque[str] = deque(maxlen=_WINDOW)
        self._told: set[str] = set()

    def count(self, outcome: str, reason: str) -> None:
        """Note how an episode ended. Raise RewardBudgetError if too many failed: a few in a row at the beginning, or the share later."""
        self._recent.append(outcome)
        if outcome == "exhausted" and outcome not in self._told:
            self._warn_of_budgets(reason)
        if outcome not in _WORDS:
            return
        if outcome not in self._told:
            self._told.add(outcome)
            self._say(
                f"{_WORDS[outcome]}, and the episode does not train ({reason}); further ones are counted in conversation/episode_{outcome}"
            )
        counts, seen = Counter(self._recent), len(self._recent)
        own, lost = counts["environment"], counts["lost"]
        if seen == _HOPELESS and self._share < 1 and sum(counts[name] for name in _WORDS) == seen:
            raise RewardBudgetError(
                f"none of the first {seen} episodes of environment {self._environment} came to its end; the latest: {reason}; "
                f"{_repair('the environment or its agent', seen - lost, lost)}, or write error_budget = 1 in [sampling.options]"
            )
        if outcome not in ("environment", "lost"):
            return
        if self._share == 0 or (seen >= _LEAST and own + lost > self._share * seen):
            raise RewardBudgetError(
                f"{own + lost} of the last {seen} episodes of environment {self._environment} failed ({own} by its own fault, {lost} lost "
                f"with a process that they needed), more than error_budget = {self._share:g} in [sampling.options] allows; the latest: "
                f"{reason}; {_repair('the environment', own, lost)}, or raise error_budget"
            )

    def _warn_of_budgets(self, reason: str) -> None:
        """Say once that most episodes use up their budget before they have a reward."""
        ended, seen = self._recent.count("exhausted"), len(self._recent)
        if seen >= _HOPELESS and 2 * ended > seen:
            self._told.add("exhausted")
            self._say(
                f"{ended} of the last {seen} episodes had no reward yet when their budget was used up ({reason}); the reward environment "
                "gives them its option exhausted (0 by default); raise --max-calls, --max-new-tokens or --max-context-tokens, or let the "
                "environment return a reward after a refused call"
            )


def _repair(who: str, own: int, lost: int) -> str:
    """Return what to do. A gateway process or the engine of a player may be lost without a fault of the environment."""
    advice = [f"repair {who}"] if own else []
    if lost:
        advice.append("find out what ended the processes that were lost, for example a lack of memory")
    return ", and ".join(advice)
