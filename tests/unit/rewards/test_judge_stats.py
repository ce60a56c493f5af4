"""The budget for failures and the figures."""

import pytest

from rlcore.contracts.errors import RewardBudgetError
from rlcore.contracts.types import Outcome, Score
from rlcore.rewards.judge_stats import JudgeStats

FINE = Score(value=1.0)
WRONG = Score(value=0.0, outcome=Outcome.WRONG)
HUNG = Score.failed(Outcome.TIMEOUT, "no verdict")


def test_wrong_answers_are_no_failures():
    tally = JudgeStats(["a"], 0.0)
    tally.verdict("a", [WRONG] * 500, 0.1)
    tally.check_budget()


@pytest.mark.parametrize(
    ("fine", "hung", "breaks"), [(44, 5, False), (45, 5, False), (44, 6, True), (1, 48, False), (0, 7, False), (0, 8, True)]
)
def test_the_budget_speaks_from_fifty_verdicts_on_or_from_eight_where_all_failed(fine, hung, breaks):
    tally = JudgeStats(["a"], 0.1)
    tally.verdict("a", [FINE] * fine + [HUNG] * hung, 0.1)
    if breaks:
        with pytest.raises(RewardBudgetError, match=rf"{hung} of the last {fine + hung} .*no verdict"):
            tally.check_budget()
    else:
        tally.check_budget()


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.ERROR, Outcome.INFRA])
def test_whatever_the_judge_or_the_machine_did_wrong_is_a_failure(outcome):
    tally = JudgeStats(["a"], 0.0)
    tally.verdict("a", [FINE, Score.failed(outcome, "at fault")], 0.1)
    with pytest.raises(RewardBudgetError, match=rf"1 of the last 2 .*\(1 {outcome.value}\).*reward a: {outcome.value}, at fault"):
        tally.check_budget()


def test_a_budget_of_everything_allows_everything():
    tally = JudgeStats(["a"], 1.0)
    tally.verdict("a", [HUNG] * 2000, 0.1)
    tally.check_budget()


def test_the_first_failure_is_said_once(caplog):
    tally = JudgeStats(["a"], 1.0)
    for _ in range(3):
        tally.verdict("a", [FINE, HUNG], 0.1)
    assert [record.getMessage() for record in caplog.records] == ["first failed verdict: reward a: timeout, no verdict"]


def test_what_was_taken_is_not_counted_again():
    tally = JudgeStats(["a", "b"], 1.0)
    tally.verdict("a", [FINE, HUNG], 0.1)
    tally.mixed([FINE, HUNG])
    tally.take()
    assert tally.take().figures() == {"reward/timeouts": 0.0, "reward/a/timeouts": 0.0, "reward/b/timeouts": 0.0}


def test_a_long_good_past_does_not_hide_a_broken_judge():
    tally = JudgeStats(["a"], 0.1)
    tally.verdict("a", [FINE] * 100_000, 0.1)
    tally.verdict("a", [HUNG] * 101, 0.1)
    with pytest.raises(RewardBudgetError, match="101 of the last 1000"):
        tally.check_budget()


def test_figures():
    tally = JudgeStats(["a"], 1.0)
    for seconds in range(101):
        tally.verdict("a", [HUNG if seconds == 7 else FINE], float(seconds))
    tally.mixed([FINE, FINE, WRONG, HUNG])
    figures = tally.take().figures()
    assert figures["reward/outcome/ok"] == 0.5
    assert (figures["reward/outcome/wrong"], figures["reward/outcome/timeout"]) == (0.25, 0.25)
    assert (figures["reward/latency_p50"], figures["reward/latency_p99"]) == (50.0, 99.0)
    assert figures["reward/timeouts"] == 1.0


def test_a_budget_of_nothing_allows_nothing():
    tally = JudgeStats(["a"], 0.0)
    tally.verdict("a", [FINE, HUNG], 0.1)
    with pytest.raises(RewardBudgetError, match=r"1 of the last 2 .*raise --reward-error-budget"):
        tally.check_budget()


@pytest.mark.parametrize(("fine", "hung", "breaks"), [(95, 5, False), (94, 6, True), (43, 6, False), (44, 6, True)])
def test_a_reward_s_own_budget_looks_at_its_own_verdicts_of_one_outcome(fine, hung, breaks):
    tally = JudgeStats(["a", "b"], 1.0, {"a": {Outcome.TIMEOUT: 0.05}})
    tally.verdict("b", [HUNG] * 500, 0.1)
    tally.verdict("a", [Score.failed(Outcome.ERROR, "x")] * 7, 0.1)
    tally.verdict("a", [FINE] * (fine - 7) + [HUNG] * hung, 0.1)
    if not breaks:
        tally.check_budget()
        return
    words = rf"{hung} of the last {fine + hung} verdicts of reward a ended with timeout, .*timeout = 0.05 .*raise timeout in budget"
    with pytest.raises(RewardBudgetError, match=words):
        tally.check_budget()


def test_figures_of_several_rewards():
    tally = JudgeStats(["a", "b"], 1.0)
    tally.verdict("a", [FINE, WRONG], 2.0)
    tally.verdict("b", [HUNG, HUNG], 4.0)
    figures = tally.take().figures()
    assert {name: value for name, value in figures.items() if name.startswith("reward/a/")} == {
        "reward/a/outcome/ok": 0.5,
        "reward/a/outcome/wrong": 0.5,
        "reward/a/latency_p50": 2.0,
        "reward/a/latency_p99": 2.0,
        "reward/a/timeouts": 0.0,
    }
    assert (figures["reward/b/timeouts"], figures["reward/timeouts"], figures["reward/latency_p50"]) == (2.0, 2.0, 3.0)


def test_a_source_that_always_fails_does_not_hide_behind_the_others() -> None:
    tally = JudgeStats(["a"], 0.1, sources=("one", "two"))
    for _ in range(40):
        tally.verdict("a", [Score(value=1.0)] * 8, 0.1, source=0)
    tally.verdict("a", [Score.failed(Outcome.ERROR, "no gold answer")] * 8, 0.1, source=1)
    with pytest.raises(RewardBudgetError, match="8 of the last 8 reward verdicts of source two failed"):
        tally.check_budget()
