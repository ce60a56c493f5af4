"""What a run says if too many episodes fail: it names the environment only if one of them failed by its fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rlcore_plugin_agents.error_budget import ErrorBudget

from rlcore.api.runtime import RewardBudgetError

REPAIR, PROCESSES = "repair the environment", "find out what ended the processes that were lost"


def fail(budget: ErrorBudget, outcomes: Sequence[str]) -> None:
    for outcome in outcomes:
        budget.count(outcome, "player black: its engine has ended")


@pytest.mark.parametrize("before", [[], ["ok"] * 40])
@pytest.mark.parametrize(
    ("outcomes", "named", "unnamed"),
    [
        (["lost"], [PROCESSES], [REPAIR]),
        (["environment"], [REPAIR], [PROCESSES]),
        (["lost", "environment"], [REPAIR, PROCESSES], []),
    ],
)
def test_the_advice_fits_what_failed(before: Sequence[str], outcomes: Sequence[str], named: Sequence[str], unnamed: Sequence[str]) -> None:
    budget = ErrorBudget("game", 0.1, lambda text: None)
    with pytest.raises(RewardBudgetError) as raised:
        fail(budget, [*before, *outcomes * 8])
    for words in named:
        assert words in str(raised.value)
    for words in unnamed:
        assert words not in str(raised.value)


@pytest.mark.parametrize(("others", "warnings"), [(3, 1), (50, 0)])
def test_most_episodes_that_use_up_their_budget_are_told_once(others: int, warnings: int) -> None:
    said: list[str] = []
    budget = ErrorBudget("game", 0.1, said.append)
    for outcome in ("ok",) * others + ("exhausted",) * 40:
        budget.count(outcome, "the budget of calls was used up")
    assert len(said) == warnings
    if said:
        assert said[0].startswith("5 of the last 8 episodes had no reward yet when their budget was used up (the budget of calls")
        assert "raise --max-calls" in said[0]
