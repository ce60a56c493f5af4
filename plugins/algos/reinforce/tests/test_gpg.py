from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_reinforce.gpg import GroupPolicyGradient, PolicyGradient

from rlcore.api import AdvantageEstimator, Loss, LossBatch, RewardBatch
from rlcore.learning import PolicyObjective
from rlcore.testing import AdvantageSuite, LossSuite, make_reward_batch


class TestEstimatorConforms(AdvantageSuite):
    def make(self) -> AdvantageEstimator:
        return GroupPolicyGradient()


class TestLossConforms(LossSuite):
    def make(self) -> Loss:
        return PolicyGradient()


def scalar(rows: list[Any]) -> list[float]:
    counting = [row for row in rows if row.counts]
    with_signal = [row for row in counting if len({other.reward for other in counting if other.group == row.group}) > 1]
    alpha = len(counting) / len(with_signal) if with_signal else 1.0
    values = []
    for row in rows:
        members = [other.reward for other in counting if other.group == row.group]
        values.append(alpha * (row.reward - math.fsum(members) / len(members)) if row.counts else 0.0)
    return values


def test_estimator_equals_the_scalar_formula(cases: list[tuple[RewardBatch, list[Any]]]) -> None:
    for batch, rows in cases:
        assert GroupPolicyGradient().estimate(batch) == pytest.approx(scalar(rows), rel=1e-9, abs=1e-9)


def test_alpha_by_hand() -> None:
    """Five rollouts count, two of them in a group with different rewards: alpha 5/2. The masked one counts nowhere."""
    batch = make_reward_batch([1.0, 0.0, 1.0, 1.0, 3.0, 9.0], [0, 0, 1, 1, 2, 1], in_statistics=[True] * 5 + [False])
    assert GroupPolicyGradient().estimate(batch).tolist() == [1.25, -1.25, 0.0, 0.0, 0.0, 0.0]


def test_alpha_counts_groups_with_signal_and_not_rewards_that_are_not_zero() -> None:
    batch = make_reward_batch([0.0, 0.0, 0.0, 8.0], [0, 0, 0, 0])
    assert GroupPolicyGradient().estimate(batch).tolist() == [-2.0, -2.0, -2.0, 6.0]


@pytest.mark.parametrize("reward", [0.7, 0.1, float(np.float32(0.7)), float(np.float32(0.1)), 1e9 + 0.3])
@pytest.mark.parametrize("size", [1, 2, 3, 12, 4096])
def test_equal_rewards_are_exactly_zero_and_have_no_signal(reward: float, size: int) -> None:
    assert not GroupPolicyGradient().estimate(make_reward_batch([reward] * size, [0] * size, lengths=[1] * size)).any()
    beside = make_reward_batch([reward] * size + [1.0, 0.0], [0] * size + [1, 1], lengths=[1] * (size + 2))
    assert GroupPolicyGradient().estimate(beside)[-2:].tolist() == [0.5 * (size + 2) / 2, -0.5 * (size + 2) / 2]


def test_what_does_not_count_leaks_nothing(poisoned: list[tuple[RewardBatch, RewardBatch]]) -> None:
    for clean, bad in poisoned:
        assert np.array_equal(GroupPolicyGradient().estimate(bad), GroupPolicyGradient().estimate(clean))


def test_no_rollouts() -> None:
    assert GroupPolicyGradient().estimate(make_reward_batch([], [])).shape == (0,)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 35.0, 1e5])
def test_rewards_that_differ_by_rounding_are_equal_and_say_nothing(scale: float) -> None:
    """Sums of weighted rewards: half of the rollouts are without signal, so alpha is 2."""
    equal = [scale * (0.1 + 0.2), scale * 0.3, scale * 0.3, scale * (0.1 + 0.2)]
    advantages = GroupPolicyGradient().estimate(make_reward_batch([*equal, 1.0, 0.0, 0.0, 1.0], [0, 0, 0, 0, 1, 1, 1, 1]))
    assert advantages[4:].tolist() == [1.0, -1.0, -1.0, 1.0]


def test_a_small_difference_of_large_rewards_is_a_signal() -> None:
    advantages = GroupPolicyGradient().estimate(make_reward_batch([1e6, 1e6 + 1e-3, 1.0, 0.0], [0, 0, 1, 1]))
    assert advantages[2:].tolist() == [0.5, -0.5]


def test_masked_groups_do_not_enlarge_the_step() -> None:
    """They are out of the loss's denominator already: half of the groups masked, the gradient of each token is that without them."""
    rewards, group = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0], [0, 0, 1, 1, 2, 2, 3, 3]
    masked = make_reward_batch(rewards, group, in_loss=[number in (0, 2) for number in group])
    alone = make_reward_batch([1.0, 0.0, 0.0, 1.0], [0, 0, 1, 1])
    advantages = GroupPolicyGradient().estimate(masked)
    assert advantages[[0, 1, 4, 5]].tolist() == GroupPolicyGradient().estimate(alone).tolist() == [0.5, -0.5, -0.5, 0.5]
    assert GroupPolicyGradient().estimate(make_reward_batch(rewards, group))[[0, 1]].tolist() == [1.0, -1.0]


def loss_batch(advantages: list[float], old: list[float], weights: list[float]) -> LossBatch:
    values = torch.tensor(old, dtype=torch.float64)
    return LossBatch(
        row=torch.zeros(len(old), dtype=torch.int64),
        lengths=torch.tensor([len(old)]),
        advantages=torch.tensor(advantages, dtype=torch.float64),
        old_logprobs=values,
        rollout_logprobs=values,
        weights=torch.tensor(weights, dtype=torch.float64),
    )


TOKENS = st.lists(st.tuples(st.floats(-50, 0), st.floats(-3, 3), st.floats(-10, 0)), min_size=1, max_size=8)


@settings(max_examples=50, deadline=None)
@given(TOKENS)
def test_loss_and_gradient_equal_the_scalar_formula(tokens: list[tuple[float, float, float]]) -> None:
    """-A log p, gradient -A: the old log probability plays no part."""
    logprobs = torch.tensor([token[0] for token in tokens], dtype=torch.float64, requires_grad=True)
    batch = loss_batch([token[1] for token in tokens], [token[2] for token in tokens], [1.0] * len(tokens))
    values = PolicyGradient().per_token(logprobs, batch)
    values.sum().backward()
    assert logprobs.grad is not None
    assert values.tolist() == [-token[1] * token[0] for token in tokens]
    assert logprobs.grad.tolist() == [-token[1] for token in tokens]


def test_on_policy_it_has_the_gradient_of_the_ratio_loss() -> None:
    """At ratio 1 the clipped surrogate and the plain policy gradient push alike."""
    from rlcore.learning import ClippedSurrogate

    old = [-0.5, -2.0, -4.0]
    gradients = []
    for loss in (PolicyGradient(), ClippedSurrogate()):
        logprobs = torch.tensor(old, dtype=torch.float64, requires_grad=True)
        PolicyObjective(loss=loss)(logprobs, loss_batch([1.0, -2.0, 0.5], old, [0.2, 0.3, 0.5]))[0].backward()
        gradients.append(logprobs.grad)
    assert gradients[0].tolist() == pytest.approx(gradients[1].tolist(), rel=1e-15)
    assert gradients[0].tolist() == pytest.approx([-0.2, 0.6, -0.25])
