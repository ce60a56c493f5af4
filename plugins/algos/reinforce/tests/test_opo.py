from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_reinforce.opo import OptimalBaseline

from rlcore.api import AdvantageEstimator, RewardBatch
from rlcore.testing import AdvantageSuite, make_reward_batch


class TestConforms(AdvantageSuite):
    def make(self) -> AdvantageEstimator:
        return OptimalBaseline()


def scalar(rows: list[Any]) -> list[float]:
    values = []
    for row in rows:
        members = [other for other in rows if other.group == row.group and other.counts]
        tokens = sum(len(other.kl) for other in members)
        if not row.counts or tokens == 0:
            values.append(0.0)
            continue
        baseline = math.fsum(len(other.kl) * other.reward for other in members) / tokens
        values.append(row.reward - baseline)
    return values


def test_equals_the_scalar_formula(cases: list[tuple[RewardBatch, list[Any]]]) -> None:
    for batch, rows in cases:
        assert OptimalBaseline().estimate(batch) == pytest.approx(scalar(rows), rel=1e-9, abs=1e-9)


def test_by_hand() -> None:
    """Rewards 1, 0 with lengths 3, 1: baseline 3/4. A second group with a completion of no tokens: baseline 2."""
    batch = make_reward_batch([1.0, 0.0, 5.0, 2.0], [0, 0, 1, 1], lengths=[3, 1, 0, 4])
    assert OptimalBaseline().estimate(batch).tolist() == [0.25, -0.75, 3.0, 0.0]


def test_equal_lengths_give_the_group_mean() -> None:
    assert OptimalBaseline().estimate(make_reward_batch([1.0, 0.0, 2.0], [0, 0, 0])).tolist() == [0.0, -1.0, 1.0]


def test_the_advantages_weighted_by_length_add_up_to_nothing(batches: list[RewardBatch]) -> None:
    for batch in batches:
        weighted = OptimalBaseline().estimate(batch) * batch.lengths
        assert np.bincount(batch.group, weights=weighted) == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize("reward", [0.7, 0.1, float(np.float32(0.7)), float(np.float32(0.1)), 1e9 + 0.3])
@pytest.mark.parametrize("size", [1, 2, 3, 12, 4096])
def test_equal_rewards_are_exactly_zero(reward: float, size: int) -> None:
    batch = make_reward_batch([reward] * size, [0] * size, lengths=[(7 * row) % 13 + 1 for row in range(size)])
    assert not OptimalBaseline().estimate(batch).any()


def test_a_group_without_a_token_is_zero() -> None:
    assert OptimalBaseline().estimate(make_reward_batch([1.0, 4.0], [0, 0], lengths=[0, 0])).tolist() == [0.0, 0.0]
    one_masked = make_reward_batch([1.0, 4.0], [0, 0], lengths=[0, 9], in_statistics=[True, False])
    assert OptimalBaseline().estimate(one_masked).tolist() == [0.0, 0.0]
    assert OptimalBaseline().estimate(make_reward_batch([1.0, 4.0], [0, 0], lengths=[1, 0])).tolist() == [0.0, 3.0]
    assert OptimalBaseline().estimate(make_reward_batch([], [])).shape == (0,)


def test_kl_and_greedy_rewards_are_none_of_its_business(batches: list[RewardBatch]) -> None:
    for batch in batches:
        bare = replace(batch, kl=None, kl_coeff=0.0, greedy=None)
        assert np.array_equal(OptimalBaseline().estimate(batch), OptimalBaseline().estimate(bare))


def test_what_does_not_count_leaks_nothing(poisoned: list[tuple[RewardBatch, RewardBatch]]) -> None:
    for clean, bad in poisoned:
        assert np.array_equal(OptimalBaseline().estimate(bad), OptimalBaseline().estimate(clean))
