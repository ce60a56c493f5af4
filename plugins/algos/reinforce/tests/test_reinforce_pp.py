from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from rlcore_plugin_reinforce.options import ReinforcePlusPlusOptions
from rlcore_plugin_reinforce.reinforce_pp import ReinforcePlusPlus

from rlcore.api import AdvantageEstimator, RewardBatch
from rlcore.testing import AdvantageSuite, make_reward_batch


class TestConforms(AdvantageSuite):
    shift_invariant = False  # no baseline per group: only a shift of all rewards changes nothing

    def make(self) -> AdvantageEstimator:
        return ReinforcePlusPlus()


class TestDiscountedConforms(AdvantageSuite):
    shift_invariant = False
    equal_gives_zero = False  # the discount makes early tokens worth less than late ones

    def make(self) -> AdvantageEstimator:
        return ReinforcePlusPlus(ReinforcePlusPlusOptions(gamma=0.9))


def scalar(rows: list[Any], kl_coeff: float, gamma: float) -> list[float]:
    """Token by token: the discounted sum of what follows, then mean and unbiased deviation of all that count."""
    returns, counted = [], []
    for row in rows:
        size = len(row.kl)
        for t in range(size):
            later = [gamma ** (s - t) * ((row.reward if s == size - 1 else 0.0) - kl_coeff * row.kl[s]) for s in range(t, size)]
            returns.append(math.fsum(later) if row.counts else 0.0)
            counted.append(row.counts)
    kept = [value for value, ok in zip(returns, counted, strict=True) if ok]
    mean = math.fsum(kept) / max(len(kept), 1)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in kept) / max(len(kept) - 1, 1))
    return [(value - mean) / (std + 1e-4) if ok else 0.0 for value, ok in zip(returns, counted, strict=True)]


@pytest.mark.parametrize("gamma", [1.0, 0.99, 0.5])
def test_equals_the_scalar_formula(cases: list[tuple[RewardBatch, list[Any]]], gamma: float) -> None:
    estimator = ReinforcePlusPlus(ReinforcePlusPlusOptions(gamma=gamma))
    for batch, rows in cases:
        assert estimator.estimate(batch) == pytest.approx(scalar(rows, batch.kl_coeff, gamma), rel=1e-9, abs=1e-9)


def test_by_hand() -> None:
    """Rewards 1 and 0, two tokens and one. KL 0.5 at the first token, coefficient 2: returns 0, 1 | 0; mean 1/3, variance 1/3."""
    batch = make_reward_batch([1.0, 0.0], [0, 1], lengths=[2, 1], kl=[0.5, 0.0, 0.0], kl_coeff=2.0)
    std = math.sqrt(1 / 3) + 1e-4
    assert ReinforcePlusPlus().estimate(batch) == pytest.approx([-1 / 3 / std, 2 / 3 / std, -1 / 3 / std], rel=1e-12)


def test_discount_by_hand() -> None:
    """Gamma 0.5, reward 4 after three tokens: returns 1, 2, 4; mean 7/3, variance 7/3."""
    values = ReinforcePlusPlus(ReinforcePlusPlusOptions(gamma=0.5)).estimate(make_reward_batch([4.0], [0]))
    std = math.sqrt(7 / 3) + 1e-4
    assert values == pytest.approx([(value - 7 / 3) / std for value in (1, 2, 4)], rel=1e-12)


def test_a_shift_of_all_rewards_changes_nothing_without_discount(batches: list[RewardBatch]) -> None:
    changed = 0
    for batch in batches:
        moved = replace(batch, rewards=batch.rewards + 7.5)
        assert ReinforcePlusPlus().estimate(moved) == pytest.approx(ReinforcePlusPlus().estimate(batch), rel=1e-7, abs=1e-7)
        discounted = ReinforcePlusPlus(ReinforcePlusPlusOptions(gamma=0.9))
        changed += not np.allclose(discounted.estimate(moved), discounted.estimate(batch), atol=1e-3)
    assert changed > len(batches) // 2


def test_what_does_not_count_leaks_nothing(poisoned: list[tuple[RewardBatch, RewardBatch]]) -> None:
    for clean, bad in poisoned:
        assert np.array_equal(ReinforcePlusPlus().estimate(bad), ReinforcePlusPlus().estimate(clean))


@pytest.mark.parametrize("reward", [0.7, 0.1, float(np.float32(0.7)), float(np.float32(0.1)), 1e9 + 0.3])
def test_equal_rewards_over_groups_and_lengths_are_exactly_zero(reward: float) -> None:
    batch = make_reward_batch([reward] * 7, [0, 0, 1, 2, 2, 2, 3], lengths=[0, 3, 1, 7, 2, 4096, 5], kl=[0.3] * 4114, kl_coeff=0.0)
    assert not ReinforcePlusPlus().estimate(batch).any()


def test_one_token_is_zero_and_no_token_is_no_value() -> None:
    assert ReinforcePlusPlus().estimate(make_reward_batch([5.0], [0], lengths=[1])).tolist() == [0.0]
    assert ReinforcePlusPlus().estimate(make_reward_batch([5.0], [0], lengths=[0])).shape == (0,)
    assert ReinforcePlusPlus().estimate(make_reward_batch([], [])).shape == (0,)


@pytest.mark.parametrize("bad", [{"gamma": 0.0}, {"gamma": 1.01}, {"gamma": -0.5}, {"gama": 0.9}])
def test_options_refuse(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        ReinforcePlusPlusOptions(**bad)
