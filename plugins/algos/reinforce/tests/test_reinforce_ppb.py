from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_reinforce.reinforce_ppb import ReinforcePlusPlusBaseline

from rlcore.api import AdvantageEstimator, RewardBatch
from rlcore.testing import AdvantageSuite, make_reward_batch


class TestConforms(AdvantageSuite):
    def make(self) -> AdvantageEstimator:
        return ReinforcePlusPlusBaseline()


def scalar(rows: list[Any], kl_coeff: float) -> list[float]:
    values, counted = [], []
    for row in rows:
        members = [other.reward for other in rows if other.group == row.group and other.counts]
        compared = row.counts and len(members) > 1
        for kl in row.kl:
            values.append(row.reward - math.fsum(members) / len(members) - kl_coeff * kl if compared else 0.0)
            counted.append(compared)
    kept = [value for value, ok in zip(values, counted, strict=True) if ok]
    mean = math.fsum(kept) / max(len(kept), 1)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in kept) / max(len(kept) - 1, 1))
    return [(value - mean) / (std + 1e-4) if ok else 0.0 for value, ok in zip(values, counted, strict=True)]


def test_equals_the_scalar_formula(cases: list[tuple[RewardBatch, list[Any]]]) -> None:
    for batch, rows in cases:
        assert ReinforcePlusPlusBaseline().estimate(batch) == pytest.approx(scalar(rows, batch.kl_coeff), rel=1e-9, abs=1e-9)


def test_by_hand() -> None:
    """Group 0: 1 and 0 with 1 and 3 tokens -> 0.5 | -0.5 x 3; group 1: 4 and 0, one token each -> 2 | -2. Mean -1/6."""
    batch = make_reward_batch([1.0, 0.0, 4.0, 0.0], [0, 0, 1, 1], lengths=[1, 3, 1, 1])
    centred = [0.5, -0.5, -0.5, -0.5, 2.0, -2.0]
    mean = -1 / 6
    std = math.sqrt(sum((value - mean) ** 2 for value in centred) / 5)
    assert ReinforcePlusPlusBaseline().estimate(batch) == pytest.approx([(value - mean) / (std + 1e-4) for value in centred], rel=1e-12)


def test_the_result_has_unit_deviation_it_is_divided_not_multiplied() -> None:
    batch = make_reward_batch([10.0, 0.0, 30.0, 0.0], [0, 0, 1, 1])
    values = ReinforcePlusPlusBaseline().estimate(batch)
    assert float(values.std(ddof=1)) == pytest.approx(1.0, rel=1e-4)
    assert abs(float(values.mean())) < 1e-12


def test_kl_is_of_the_token_alone() -> None:
    """A token's penalty moves its own value and, through the whitening, every other one by the same amount."""
    quiet = make_reward_batch([1.0, 0.0], [0, 0], lengths=[3, 3], kl=[0.0] * 6, kl_coeff=0.1)
    loud = replace(quiet, kl=np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0]))
    values = ReinforcePlusPlusBaseline().estimate(loud)
    assert values[0] == values[1]
    assert values[2] < values[1]
    assert values[3] == values[4] == values[5]


def test_a_group_of_one_is_zero_and_moves_nobody() -> None:
    alone = make_reward_batch([1.0, 0.0, 2.0], [0, 0, 0], lengths=[2, 1, 3])
    beside = make_reward_batch([1.0, 0.0, 2.0, 1e6], [0, 0, 0, 1], lengths=[2, 1, 3, 5])
    values = ReinforcePlusPlusBaseline().estimate(beside)
    assert not values[6:].any()
    assert np.array_equal(values[:6], ReinforcePlusPlusBaseline().estimate(alone))


@pytest.mark.parametrize("reward", [0.7, 0.1, float(np.float32(0.7)), float(np.float32(0.1)), 1e9 + 0.3])
def test_groups_of_equal_rewards_are_exactly_zero(reward: float) -> None:
    batch = make_reward_batch([reward] * 5 + [0.0] * 3, [0] * 5 + [1] * 3, lengths=[0, 1, 2, 3000, 4, 5, 6, 7])
    assert not ReinforcePlusPlusBaseline().estimate(batch).any()


def test_what_does_not_count_leaks_nothing(poisoned: list[tuple[RewardBatch, RewardBatch]]) -> None:
    for clean, bad in poisoned:
        assert np.array_equal(ReinforcePlusPlusBaseline().estimate(bad), ReinforcePlusPlusBaseline().estimate(clean))


def test_no_rollouts() -> None:
    assert ReinforcePlusPlusBaseline().estimate(make_reward_batch([], [])).shape == (0,)
