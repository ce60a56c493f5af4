"""The share of episodes that may fail by the fault of their environment."""

from __future__ import annotations

from collections import Counter, deque

from rlcore.api.runtime import RewardBudgetError

__all__ = ["ErrorBudget"]

_WINDOW, _LEAST, _HOPELESS = 200, 40, 8


class ErrorBudget:
    """Counts the outcomes of the latest episodes of one environment."""

    def __init__(self, environment: str, share: float) -> None:
        self._environment, self._share = environment, share
        self._recent: deque[str] = deque(maxlen=_WINDOW)

    def count(self, outcome: str, reason: str) -> None:
        """Note how an episode ended. Raise RewardBudgetError if too many failed: a few in a row at the beginning, or the share later."""
        self._recent.append(outcome)
        if outcome not in ("environment", "lost"):
            return
        counts, seen = Counter(self._recent), len(self._recent)
        failed = counts["environment"] + counts["lost"]
        hopeless = seen >= _HOPELESS and failed == seen and self._share < 1
        if self._share == 0 or hopeless or (seen >= _LEAST and failed > self._share * seen):
            raise RewardBudgetError(
                f"{failed} of the last {seen} episodes of environment {self._environment} failed ({counts['environment']} by its own "
                f"fault, {counts['lost']} lost with their process), more than error_budget = {self._share:g} in [sampling.options] "
                f"allows; the latest: {reason}; repair the environment, or raise error_budget"
            )
