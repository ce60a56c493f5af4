from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_rloo.leave_one_out import LeaveOneOut

from rlcore.api import AdvantageEstimator, RewardBatch
from rlcore.testing import AdvantageSuite, make_reward_batch


class TestConforms(AdvantageSuite):
    def make(self) -> AdvantageEstimator:
        return LeaveOneOut()


def scalar(rewards: list[float], group: list[int], counts: list[bool]) -> list[float]:
    """Each reward less the mean of the others, as the paper writes it."""
    values = []
    for i, reward in enumerate(rewards):
        others = [rewards[j] for j in range(len(rewards)) if j != i and group[j] == group[i] and counts[j]]
        values.append(reward - math.fsum(others) / len(others) if counts[i] and others else 0.0)
    return values


ROWS = st.lists(st.tuples(st.floats(-10, 10), st.integers(0, 3), st.booleans(), st.integers(0, 6)), min_size=1, max_size=14)


@settings(max_examples=80, deadline=None)
@given(ROWS)
def test_equals_the_scalar_formula(rows: list[tuple[float, int, bool, int]]) -> None:
    rewards, group, counts, lengths = (list(column) for column in zip(*rows, strict=True))
    values = LeaveOneOut().estimate(make_reward_batch(rewards, group, in_statistics=counts, lengths=lengths))
    assert values == pytest.approx(scalar(rewards, group, counts), rel=1e-9, abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(ROWS, st.floats(0.01, 2.0), st.integers(0, 1000))
def test_with_kl_equals_the_scalar_formula(rows: list[tuple[float, int, bool, int]], coeff: float, seed: int) -> None:
    """The KL of all tokens of a rollout comes off its reward, before the others are averaged."""
    rewards, group, counts, lengths = (list(column) for column in zip(*rows, strict=True))
    kl = np.random.default_rng(seed).normal(0, 1, sum(lengths)).tolist()
    batch = make_reward_batch(rewards, group, in_statistics=counts, lengths=lengths, kl=kl, kl_coeff=coeff)
    shaped, place = [], 0
    for reward, length in zip(rewards, lengths, strict=True):
        shaped.append(reward - coeff * math.fsum(kl[place : place + length]))
        place += length
    assert LeaveOneOut().estimate(batch) == pytest.approx(scalar(shaped, group, counts), rel=1e-9, abs=1e-9)


def test_by_hand() -> None:
    """Rewards 1, 0, 0 against 0, 1/2, 1/2; a ragged second group of 4 and 1; alone in the third: 0."""
    values = LeaveOneOut().estimate(make_reward_batch([1.0, 0.0, 0.0, 4.0, 1.0, 9.0], [0, 0, 0, 1, 1, 2]))
    assert values == pytest.approx([1.0, -0.5, -0.5, 3.0, -3.0, 0.0], rel=1e-14)


def test_a_coefficient_of_zero_and_no_kl_are_the_same() -> None:
    with_kl = make_reward_batch([1.0, 0.0], [0, 0], kl=[np.nan] * 6, kl_coeff=0.0)
    assert LeaveOneOut().estimate(with_kl).tolist() == LeaveOneOut().estimate(replace(with_kl, kl=None)).tolist() == [1.0, -1.0]


@pytest.mark.parametrize("reward", [0.7, 0.1, float(np.float32(0.7)), float(np.float32(0.1)), 1e9 + 0.3])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 12, 4096])
def test_equal_rewards_are_exactly_zero(reward: float, size: int) -> None:
    assert not LeaveOneOut().estimate(make_reward_batch([reward] * size, [0] * size, lengths=[row % 5 for row in range(size)])).any()


def test_a_group_of_which_one_counts_is_zero() -> None:
    values = LeaveOneOut().estimate(make_reward_batch([5.0, 1.0, 2.0], [0, 0, 1], in_statistics=[True, False, True]))
    assert values.tolist() == [0.0, 0.0, 0.0]
    assert LeaveOneOut().estimate(make_reward_batch([], [])).shape == (0,)


def test_what_does_not_count_leaks_nothing() -> None:
    clean = make_reward_batch([1.0, 0.0, 0.0, 0.0], [0, 0, 0, 1], in_statistics=[True, True, False, False], kl=[0.1] * 12, kl_coeff=0.5)
    bad = replace(clean, rewards=np.array([1.0, 0.0, np.nan, np.inf]), kl=np.where(np.arange(12) < 6, 0.1, [np.inf, np.nan] * 6))
    assert LeaveOneOut().estimate(bad).tolist() == LeaveOneOut().estimate(clean).tolist() == [1.0, -1.0, 0.0, 0.0]


def test_the_baseline_is_independent_of_the_own_reward() -> None:
    batch = make_reward_batch([1.0, 0.0, 3.0], [0, 0, 0])
    moved: RewardBatch = replace(batch, rewards=batch.rewards + np.array([2.0, 0.0, 0.0]))
    assert LeaveOneOut().estimate(moved)[0] - LeaveOneOut().estimate(batch)[0] == pytest.approx(2.0, rel=1e-14)
