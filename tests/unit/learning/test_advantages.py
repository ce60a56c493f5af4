from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.api import RewardBatch
from rlcore.learning import group_mean, group_size, group_std, group_sum
from rlcore.learning.advantages import GroupMean, GroupNorm
from rlcore.testing import make_reward_batch


def reward_batch(rewards: Sequence[float], group: Sequence[int], in_statistics: Sequence[bool] | None = None) -> RewardBatch:
    return make_reward_batch(rewards, group, in_statistics=in_statistics)


def scalar_group_norm(rewards: Sequence[float], group: Sequence[int], usable: Sequence[bool]) -> list[float]:
    """Written a second time, one float at a time."""
    result = []
    for reward, number, counts in zip(rewards, group, usable, strict=True):
        members = [other for other, n, ok in zip(rewards, group, usable, strict=True) if n == number and ok]
        if not counts or len(members) < 2:
            result.append(0.0)
            continue
        mean = math.fsum(members) / len(members)
        variance = math.fsum((other - mean) ** 2 for other in members) / (len(members) - 1)
        result.append((reward - mean) / (math.sqrt(variance) + 1e-4))
    return result


def test_group_norm_by_hand() -> None:
    """Rewards 1, 0, 0, 0: mean 0.25, unbiased variance (0.5625 + 3 x 0.0625) / 3 = 0.25, deviation 0.5."""
    values = GroupNorm().estimate(reward_batch([1, 0, 0, 0], [0, 0, 0, 0]))
    assert values == pytest.approx([0.75 / 0.5001, *[-0.25 / 0.5001] * 3], rel=1e-14)


def test_group_mean_by_hand() -> None:
    assert GroupMean().estimate(reward_batch([3, 0, 0, 7], [0, 0, 0, 1])).tolist() == [2.0, -1.0, -1.0, 0.0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-10, 10), st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
def test_group_norm_equals_the_scalar_loop(rows: list[tuple[float, int, bool]]) -> None:
    rows = sorted(rows, key=lambda row: row[1])
    rewards, group, usable = (list(column) for column in zip(*rows, strict=True))
    values = GroupNorm().estimate(reward_batch(rewards, group, usable))
    assert values == pytest.approx(scalar_group_norm(rewards, group, usable), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("estimator", [GroupNorm(), GroupMean()])
@pytest.mark.parametrize("reward", [0.7, 0.1, np.float32(0.7), np.float32(0.1), 1e9 + 0.3])
@pytest.mark.parametrize("size", [2, 3, 8, 12, 4096])
def test_equal_rewards_are_exactly_zero(estimator: GroupNorm, reward: float, size: int) -> None:
    assert not estimator.estimate(reward_batch([reward] * size, [0] * size)).any()


@pytest.mark.parametrize("estimator", [GroupNorm(), GroupMean()])
def test_a_group_of_one_is_zero(estimator: GroupNorm) -> None:
    batch = reward_batch([5.0, 1.0, 2.0, 9.0], [0, 1, 1, 2], [True, True, True, True])
    values = estimator.estimate(batch)
    assert values[0] == values[3] == 0.0
    assert values[1] == -values[2] != 0.0
    assert not estimator.estimate(reward_batch([5.0, 1.0], [0, 0], [True, False])).any()


def test_statistics_leave_out_what_is_not_in_them() -> None:
    batch = reward_batch([1.0, 3.0, 1e6], [0, 0, 0], [True, True, False])
    assert group_size(batch).tolist() == [2, 2, 2]
    assert group_mean(batch).tolist() == [2.0, 2.0, 2.0]
    assert group_std(batch) == pytest.approx([math.sqrt(2.0)] * 3)
    assert GroupMean().estimate(batch).tolist() == [-1.0, 1.0, 0.0]


def test_an_empty_statistic_is_finite() -> None:
    batch = reward_batch([1.0, 3.0], [0, 0], [False, False])
    assert group_mean(batch).tolist() == group_std(batch).tolist() == [0.0, 0.0]
    assert not GroupNorm().estimate(batch).any()
    assert not GroupNorm().estimate(reward_batch([], [])).any()


def test_group_sum_is_over_what_is_in_the_statistics() -> None:
    batch = reward_batch([0.0, 0.0, 0.0, 0.0], [1, 0, 1, 1], [True, True, False, True])
    assert group_sum(batch, np.array([1.0, 20.0, 300.0, 4000.0])).tolist() == [4001.0, 20.0, 4001.0, 4001.0]
