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
    "lost": "a process of an episode was lost twice",
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
        if outcome not in _WORDS:
            return
        if outcome not in self._told:
            self._told.add(outcome)
            self._say(f"{_WORDS[outcome]}, and does not train ({reason}); further ones are counted in conversation/episode_{outcome}")
        counts, seen = Counter(self._recent), len(self._recent)
        if seen == _HOPELESS and self._share < 1 and sum(counts[name] for name in _WORDS) == seen:
            raise RewardBudgetError(
                f"none of the first {seen} episodes of environment {self._environment} came to its end; the latest: {reason}; repair the "
                "environment or its agent, or write error_budget = 1 in [sampling.options]"
            )
        if outcome not in ("environment", "lost"):
            return
        failed = counts["environment"] + counts["lost"]
        if self._share == 0 or (seen >= _LEAST and failed > self._share * seen):
            raise RewardBudgetError(
                f"{failed} of the last {seen} episodes of environment {self._environment} failed ({counts['environment']} by its own "
                f"fault, {counts['lost']} lost with their process), more than error_budget = {self._share:g} in [sampling.options] "
                f"allows; the latest: {reason}; repair the environment, or raise error_budget"
            )
