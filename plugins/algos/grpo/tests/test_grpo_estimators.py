"""MaxRL and pass@k against scalar loops written from the papers, against the exact expectation they promise, and at the edges."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from pydantic import ValidationError
from rlcore_plugin_grpo.maxrl import MaxRl
from rlcore_plugin_grpo.pass_at_k import PassAtK, PassAtKOptions

from rlcore.api import AdvantageEstimator
from rlcore.testing import AdvantageSuite, make_reward_batch


class TestMaxRl(AdvantageSuite):
    shift_invariant = False  # the mean reward is the success rate, so it is not a mere baseline

    def make(self) -> AdvantageEstimator:
        return MaxRl()


class TestPassAt2(AdvantageSuite):
    def make(self) -> AdvantageEstimator:
        return PassAtK(PassAtKOptions(k=2))


class TestPassAt4(AdvantageSuite):
    def make(self) -> AdvantageEstimator:
        return PassAtK()

    def test_better_reward_is_not_worse(self) -> None:
        """Of four rewards with k = 4 only the best is ever the best of a set."""
        values = self.make().estimate(make_reward_batch([0.0, 0.5, 1.0, 0.25], [0, 0, 0, 0]))
        assert values.tolist() == [0.0, 0.0, 4 * 0.5, 0.0]


# --- the papers' formulas, one rollout at a time -----------------------------------------------------------------------


def scalar_maxrl(rewards: list[float]) -> list[float]:
    """Section 4: the scores of the successes over their number, less the scores of all over theirs; as one weight a rollout, times N."""
    total = 0.0
    for reward in rewards:
        total += reward
    if total <= 0:
        return [0.0 for _ in rewards]
    return [len(rewards) * reward / total - 1.0 for reward in rewards]


def scalar_pass_at_k(rewards: list[float], k: int) -> list[float]:
    """Equation 33 from its definition: every set of k, the best with and without the rollout."""
    k = min(k, len(rewards))
    if k < 2:
        return [0.0 for _ in rewards]
    values = []
    for one in range(len(rewards)):
        gain = 0.0
        for members in itertools.combinations(range(len(rewards)), k):
            if one in members:
                gain += max(rewards[i] for i in members) - max(rewards[i] for i in members if i != one)
        values.append(len(rewards) * gain / math.comb(len(rewards), k))
    return values


def random_groups(seed: int) -> tuple[list[float], list[int], list[bool]]:
    """Ragged interleaved groups of 1 to 7 rewards >= 0: binary, graded, with ties, all equal; some rollouts out of the statistics."""
    draw = random.Random(seed)
    rows = []
    for group in range(6):
        choices = [[0.0, 1.0], [0.0, 0.25, 0.5, 10.0], [0.7], [0.0]][draw.randrange(4)]
        rows += [(draw.choice(choices), group, draw.random() < 0.8) for _ in range(draw.randint(1, 7))]
    draw.shuffle(rows)
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("k", [None, 2, 3, 5])
def test_golden_against_scalar_loops(seed: int, k: int | None) -> None:
    rewards, group, counted = random_groups(seed)
    expected = [0.0] * len(rewards)
    for number in set(group):
        members = [row for row in range(len(rewards)) if group[row] == number and counted[row]]
        own = [rewards[row] for row in members]
        for row, value in zip(members, scalar_maxrl(own) if k is None else scalar_pass_at_k(own, k), strict=True):
            expected[row] = value
    estimator = MaxRl() if k is None else PassAtK(PassAtKOptions(k=k))
    got = estimator.estimate(make_reward_batch(rewards, group, in_statistics=counted))
    assert got.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("k", [2, 3, 4, 6])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_pass_at_k_is_the_gradient_of_pass_at_k_on_average(k: int, p: float) -> None:
    """Bernoulli(p) answers, every outcome of 6 weighed by its probability: the mean of A * d log prob / dp is d/dp (1 - (1 - p)^k)."""
    estimator = PassAtK(PassAtKOptions(k=k))
    assert expected_gradient(estimator, 6, p) == pytest.approx(k * (1 - p) ** (k - 1), rel=1e-10)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_maxrl_is_the_gradient_of_the_log_likelihood_to_order_n_less_one_on_average(n: int, p: float) -> None:
    """d/dp of the first N - 1 terms of log p = -sum over k of (1 - p)^k / k."""
    expected = sum((1 - p) ** (k - 1) for k in range(1, n))
    assert expected_gradient(MaxRl(), n, p) == pytest.approx(expected, rel=1e-10, abs=1e-12)


def expected_gradient(estimator: AdvantageEstimator, n: int, p: float) -> float:
    total = 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=n):
        advantages = estimator.estimate(make_reward_batch(list(outcome), [0] * n))
        probability = math.prod(p if won else 1 - p for won in outcome)
        scores = [1 / p if won else -1 / (1 - p) for won in outcome]
        total += probability * sum(a * s for a, s in zip(advantages, scores, strict=True)) / n
    return total


# --- edges -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [MaxRl(), PassAtK()], ids=["maxrl", "pass_at_k"])
@pytest.mark.parametrize("value", [float(np.float32(0.7)), float(np.float32(0.1)), 0.7, 1.0, 0.0, -0.3])
@pytest.mark.parametrize("size", [1, 2, 8, 12])
def test_equal_rewards_give_exactly_zero(estimator: AdvantageEstimator, value: float, size: int) -> None:
    assert estimator.estimate(make_reward_batch([value] * size, [0] * size)).tolist() == [0.0] * size


@pytest.mark.parametrize("estimator", [MaxRl(), PassAtK()], ids=["maxrl", "pass_at_k"])
def test_no_rollouts_give_no_advantages(estimator: AdvantageEstimator) -> None:
    assert estimator.estimate(make_reward_batch([], [])).shape == (0,)


def test_maxrl_stays_bounded_where_penalties_bring_the_mean_near_zero() -> None:
    values = MaxRl().estimate(make_reward_batch([1.0, -1.0 + 1e-9, 0.0, 0.0], [0] * 4))
    assert np.abs(values).max() <= 2 * 4
    assert values.tolist() == pytest.approx([4.0, -4.0, 0.0, 0.0], abs=1e-8)


def test_maxrl_of_small_rewards_is_that_of_large_ones_whatever_is_masked() -> None:
    values = MaxRl().estimate(make_reward_batch([0.001, 0.0, 50.0], [0] * 3, in_statistics=[True, True, False]))
    assert values.tolist() == pytest.approx([1.0, -1.0, 0.0])


def test_k_is_four_unless_told_otherwise() -> None:
    assert PassAtKOptions().k == PassAtK().k == 4


def test_maxrl_without_a_success_gives_zero() -> None:
    assert not MaxRl().estimate(make_reward_batch([-1.0, 0.5, 0.0], [0] * 3)).any()


def test_pass_at_k_of_a_large_group_does_not_overflow() -> None:
    values = PassAtK(PassAtKOptions(k=512)).estimate(make_reward_batch([0.0] * 1500 + [1.0], [0] * 1501))
    assert values.tolist() == pytest.approx([0.0] * 1500 + [512.0])


def test_lengths_do_not_matter() -> None:
    for estimator in (MaxRl(), PassAtK()):
        long = estimator.estimate(make_reward_batch([1.0, 0.0, 0.5], [0] * 3, lengths=[0, 100_000, 1]))
        assert long.tolist() == estimator.estimate(make_reward_batch([1.0, 0.0, 0.5], [0] * 3)).tolist()


@pytest.mark.parametrize("k", [1, 0, -1, 2.5])
def test_a_k_without_meaning_is_refused(k: float) -> None:
    with pytest.raises(ValidationError):
        PassAtKOptions(k=k)


def test_maxrl_never_makes_0_of_a_reward_that_is_nan() -> None:
    """The core refuses NaN by the estimator's name; 0 would train on as if nothing had happened."""
    values = MaxRl().estimate(make_reward_batch([math.nan, 1.0, 0.0, 1.0, 0.0], [0, 0, 0, 1, 1]))
    assert np.isnan(values[:3]).all()
    assert values[3:].tolist() == [1.0, -1.0]
