"""What several judges did, as one: counts are added, shares and percentiles are those of all verdicts together. Computed by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from rlcore.contracts.types import Outcome
from rlcore.rewards.judge_stats import JudgeCounts, RewardCounts

OK, WRONG, TIMEOUT = Outcome.OK, Outcome.WRONG, Outcome.TIMEOUT
HERE = JudgeCounts({"a": RewardCounts(Counter({OK: 2, TIMEOUT: 1}), (1.0, 2.0, 3.0))}, Counter({OK: 2, TIMEOUT: 1}))
THERE = JudgeCounts({"a": RewardCounts(Counter({TIMEOUT: 1}), (10.0,))}, Counter({TIMEOUT: 1}))


def test_timeouts_are_added_and_shares_and_percentiles_are_of_all_verdicts() -> None:
    assert (HERE + THERE).figures() == {
        "reward/outcome/ok": 2 / 4,  # the mean of the two shares would be 1/3
        "reward/outcome/timeout": 2 / 4,
        "reward/latency_p50": 2.5,  # of 1, 2, 3 and 10; the mean of the two medians would be 6
        "reward/latency_p99": pytest.approx(3 + 0.97 * 7),
        "reward/timeouts": 2.0,
    }


def test_each_of_several_rewards_is_added_to_itself() -> None:
    first = JudgeCounts(
        {"a": RewardCounts(Counter({OK: 1}), (1.0,)), "b": RewardCounts(Counter({TIMEOUT: 3}), (5.0,))}, Counter({TIMEOUT: 3})
    )
    second = JudgeCounts(
        {"a": RewardCounts(Counter({WRONG: 3}), (2.0,)), "b": RewardCounts(Counter({TIMEOUT: 1}), (7.0,))}, Counter({OK: 1})
    )
    figures = (first + second).figures()
    assert (figures["reward/a/outcome/ok"], figures["reward/a/outcome/wrong"], figures["reward/a/timeouts"]) == (0.25, 0.75, 0.0)
    assert (figures["reward/b/outcome/timeout"], figures["reward/b/timeouts"], figures["reward/b/latency_p50"]) == (1.0, 4.0, 6.0)
    assert (figures["reward/timeouts"], figures["reward/outcome/ok"]) == (4.0, 0.25)


def test_a_judge_that_judged_nothing_changes_no_figure() -> None:
    idle = JudgeCounts({"a": RewardCounts(Counter(), ())}, Counter())
    assert (HERE + idle).figures() == (idle + HERE).figures() == HERE.figures()
    assert idle.figures() == {"reward/timeouts": 0.0}
