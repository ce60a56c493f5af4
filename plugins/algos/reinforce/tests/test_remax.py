from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_reinforce.remax import ReMax

from rlcore.api import AdvantageEstimator, RewardBatch
from rlcore.testing import AdvantageSuite, make_reward_batch


class TestConforms(AdvantageSuite):
    def make(self) -> AdvantageEstimator:
        return ReMax()


def scalar(rows: list[Any], kl_coeff: float) -> list[float]:
    values = []
    for row in rows:
        for t in range(len(row.kl)):
            known = row.counts and not math.isnan(row.greedy)
            values.append(row.reward - kl_coeff * math.fsum(row.kl[t:]) - row.greedy if known else 0.0)
    return values


def test_equals_the_scalar_formula(cases: list[tuple[RewardBatch, list[Any]]]) -> None:
    for batch, rows in cases:
        assert ReMax().estimate(batch) == pytest.approx(scalar(rows, batch.kl_coeff), rel=1e-9, abs=1e-9)


def test_by_hand() -> None:
    batch = make_reward_batch([1.0, 0.0, 3.0], [0, 0, 1], lengths=[1, 2, 0], greedy=[0.25, 1.0])
    assert ReMax().estimate(batch).tolist() == [0.75, -0.25, -0.25]


def test_one_completion_is_compared_with_the_greedy_one() -> None:
    assert ReMax().estimate(make_reward_batch([1.0], [0], greedy=[0.0])).tolist() == [1.0] * 3
    assert ReMax().estimate(make_reward_batch([1.0], [0], greedy=[1.0])).tolist() == [0.0] * 3


def test_without_a_judged_greedy_completion_there_is_no_signal() -> None:
    batch = make_reward_batch([1.0, 2.0], [0, 1], lengths=[1, 1], greedy=[np.nan, 0.5])
    assert ReMax().estimate(batch).tolist() == [0.0, 1.5]


@pytest.mark.parametrize("reward", [0.7, 0.1, float(np.float32(0.7)), 1e9 + 0.3])
def test_the_greedy_reward_itself_is_exactly_zero(reward: float) -> None:
    batch = make_reward_batch([reward] * 3, [0, 0, 0], lengths=[0, 2, 3000], kl=[0.4] * 3002, greedy=[reward])
    assert not ReMax().estimate(batch).any()


def test_greedy_rewards_belong_to_groups_by_number() -> None:
    batch = make_reward_batch([0.0, 0.0, 0.0], [1, 0, 1], lengths=[1, 1, 1], greedy=[1.0, 2.0])
    assert ReMax().estimate(batch).tolist() == [-2.0, -1.0, -2.0]


def test_what_does_not_count_leaks_nothing(poisoned: list[tuple[RewardBatch, RewardBatch]]) -> None:
    for clean, bad in poisoned:
        assert np.array_equal(ReMax().estimate(bad), ReMax().estimate(clean))


def test_a_batch_without_greedy_rewards_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the rewards of greedy rollouts"):
        ReMax().estimate(replace(make_reward_batch([1.0], [0]), greedy=None))
