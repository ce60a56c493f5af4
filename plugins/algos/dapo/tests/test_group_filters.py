"""The filters of groups: the rules of the kit, and what each keeps of a group worked out by hand."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from rlcore_plugin_dapo.group_filters import (
    BestOfN,
    BestOfNOptions,
    LengthRange,
    LengthRangeOptions,
    RewardSpread,
    RewardSpreadOptions,
)

from rlcore.api import Group, GroupFilter, Outcome, Score
from rlcore.testing import GroupFilterSuite, make_rollout


class TestRewardSpread(GroupFilterSuite):
    def make(self) -> GroupFilter:
        return RewardSpread()


class TestBestOfN(GroupFilterSuite):
    def make(self) -> GroupFilter:
        return BestOfN(BestOfNOptions(best=2, worst=1))


class TestLengthRange(GroupFilterSuite):
    def make(self) -> GroupFilter:
        return LengthRange(LengthRangeOptions(min_tokens=2, max_tokens=4))


def group(*rewards: float | None, lengths: tuple[int, ...] = ()) -> Group:
    """A group of these rewards; None: the reward failed."""
    rollouts = tuple(make_rollout([1], [2] * length, index=index) for index, length in enumerate(lengths or [3] * len(rewards)))
    scores = tuple(Score.failed(Outcome.ERROR, "x") if value is None else Score(value=value) for value in rewards)
    return Group(prompt_id="p", episode=0, prompt_index=0, rollouts=rollouts, scores=scores)


@pytest.mark.parametrize(
    ("best", "worst", "kept"),
    [(1, 0, [1]), (2, 0, [1, 3]), (1, 2, [0, 1, 4]), (0, 1, [0]), (9, 9, [0, 1, 3, 4]), (2, 2, [0, 1, 3, 4])],
)
def test_best_of_n(best: int, worst: int, kept: list[int]) -> None:
    """Of equal rewards the earlier is kept, and none is counted twice; a failed reward is neither the best nor the worst."""
    answer = BestOfN(BestOfNOptions(best=best, worst=worst)).keep(group(0.0, 2.0, None, 2.0, 0.0))
    assert [place for place, value in enumerate(answer) if value] == kept


def test_equal_rewards_fill_both_ends() -> None:
    assert BestOfN(BestOfNOptions(best=1, worst=1)).keep(group(1.0, 1.0, 1.0)) == [True, True, False]


@pytest.mark.parametrize(
    ("rewards", "least", "kept"),
    [
        ((0.1, 0.1, 0.1), 1e-6, False),
        ((0.0, 1.0), 0.5, True),
        ((0.0, 1.0), 0.51, False),
        ((0.0, None, 1.0), 0.5, True),
        ((1.0, None), 0.0, False),
        ((1.0,), 0.0, False),
    ],
)
def test_reward_spread(rewards: tuple[float | None, ...], least: float, kept: bool) -> None:
    """The population deviation over rewards that did not fail; a single reward has none."""
    assert RewardSpread(RewardSpreadOptions(min_std=least)).keep(group(*rewards)) == [kept] * len(rewards)


def test_length() -> None:
    answered = group(*[1.0] * 4, lengths=(1, 2, 4, 5))
    assert LengthRange(LengthRangeOptions(min_tokens=2, max_tokens=4)).keep(answered) == [False, True, True, False]
    assert LengthRange(LengthRangeOptions(min_tokens=2)).keep(answered) == [False, True, True, True]


def test_options_that_keep_nothing_are_refused() -> None:
    with pytest.raises(ValidationError, match="type --best 1"):
        BestOfNOptions(best=0)
    with pytest.raises(ValidationError, match="type --max-tokens 5"):
        LengthRangeOptions(min_tokens=5, max_tokens=4)
