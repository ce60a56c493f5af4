"""KL in the reward: numpy, against the scalar definitions, and equal to the estimate in torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.api import KlEstimator, RunError
from rlcore.learning.kl import reward_kl
from rlcore.testing.algorithms.fake_algorithms import KL_ESTIMATORS

PAIRS = st.lists(st.tuples(st.floats(-15, 0), st.floats(-15, 0)), min_size=1, max_size=6)


def scalar(policy: float, reference: float, kind: str) -> float:
    d = reference - policy
    return {"k1": -d, "k2": d * d / 2, "k3": math.exp(d) - 1 - d, "absolute": abs(d)}[kind]


@settings(max_examples=60, deadline=None)
@given(PAIRS, st.sampled_from(list(KL_ESTIMATORS)))
def test_equals_the_scalar_definition_and_the_estimate_in_torch(pairs: list[tuple[float, float]], kind: str) -> None:
    policy, reference = (np.array([pair[side] for pair in pairs], np.float64) for side in (0, 1))
    got = reward_kl(policy, reference, KL_ESTIMATORS[kind])
    assert got.dtype == np.float64
    near = [kind != "k3" or r - p <= 10 for p, r in pairs]
    expected = [scalar(p, r, kind) for p, r in pairs]
    for value, want, inside in zip(got, expected, near, strict=True):
        assert not inside or value == pytest.approx(want, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(
        got, KL_ESTIMATORS[kind].estimate(torch.from_numpy(policy), torch.from_numpy(reference)).numpy(), rtol=1e-12, atol=1e-12
    )


def test_float32_input_is_subtracted_in_float64() -> None:
    policy, reference = np.array([-1.0], np.float32), np.array([-1.0 - 1e-7], np.float32)
    assert reward_kl(policy, reference, KL_ESTIMATORS["k1"])[0] == float(policy[0]) - float(reference[0])


@pytest.mark.parametrize("gap", [10.1, 60.0, 800.0])
def test_k3_goes_on_as_a_straight_line(gap: float) -> None:
    value = reward_kl(np.array([-gap]), np.array([0.0]), KL_ESTIMATORS["k3"])[0]
    assert value == pytest.approx(math.exp(10) * (1 + gap - 10) - 1 - gap, rel=1e-12)


class Squares(KlEstimator):
    def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        return (logprobs - reference) ** 2


def test_an_estimator_of_ones_own_needs_no_numpy() -> None:
    policy, reference = np.array([-1.0, -2.0], np.float32), np.array([-1.5, -2.5], np.float32)
    got = reward_kl(policy, reference, Squares())
    assert got.dtype == np.float64
    assert got.tolist() == [0.25, 0.25]


def test_a_kl_that_is_not_finite_or_not_one_a_token_is_blamed_on_its_estimator() -> None:
    class Divides(Squares):
        def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
            return 1.0 / (logprobs - reference)

    with pytest.raises(RunError, match="KL estimator Divides returned values that are not finite"):
        reward_kl(np.zeros(1), np.zeros(1), Divides())
    assert np.isnan(reward_kl(np.array([np.nan]), np.zeros(1), Divides())).all()

    class Means(Squares):
        def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
            return super().estimate(logprobs, reference).mean(0, keepdim=True)

    with pytest.raises(RunError, match=r"KL estimator Means returned shape \[1\]"):
        reward_kl(np.zeros(3), np.zeros(3), Means())
