"""Conformance suite for KL estimators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np
import torch

from rlcore.contracts.loss_wrappers import KlEstimator
from rlcore.learning.kl import reward_kl

__all__ = ["KlSuite"]

_GAPS = (-1e4, -60.0, -11.0, -1.0, 0.0, 0.5, 9.9, 10.1, 88.0, 200.0, 1e4)


class KlSuite(ABC):
    """The rules of a KL estimator, whose ``estimate`` is reported and whose ``penalty`` is minimised.

    A subclass defines how to make the estimator, and the divergence that the gradient of its penalty belongs to.
    """

    gradient: ClassVar[Literal["policy", "reference", ""]] = "policy"
    """On the policy's own data, in expectation, the penalty has the gradient of KL(policy || reference), of KL(reference || policy), or
    of neither."""
    tolerance: ClassVar[float] = 1e-6

    @abstractmethod
    def make(self) -> KlEstimator:
        """Return a fresh estimator."""

    def test_shape(self) -> None:
        """``estimate`` and ``penalty`` return one value for each token, and nothing for no tokens."""
        for n in (0, 1, 5):
            policy = torch.linspace(-2.0, -0.1, n)
            for method in (self.make().estimate, self.make().penalty):
                shape = tuple(method(policy, policy - 0.3).shape)
                assert shape == (n,), f"{method.__name__} of {n} tokens has shape {shape}"

    def test_equal_policies_have_none(self) -> None:
        """Estimate and penalty are exactly 0 if policy and reference are equal."""
        policy = torch.tensor([-0.1, -3.0, -20.0])
        for method in (self.make().estimate, self.make().penalty):
            values = method(policy, policy.clone())
            assert not values.any(), f"{method.__name__} of equal policies is {values.tolist()}"

    def test_finite_however_far(self) -> None:
        """The penalty and its gradient are finite in float32 and float64, however far policy and reference are apart."""
        for dtype in (torch.float32, torch.float64):
            policy = torch.zeros(len(_GAPS), dtype=dtype, requires_grad=True)
            values = self.make().penalty(policy, torch.tensor(_GAPS, dtype=dtype))
            (slope,) = torch.autograd.grad(values.sum(), policy)
            assert values.detach().isfinite().all(), f"values at gaps {_GAPS}: {values.tolist()}"
            assert slope.isfinite().all(), f"gradients at gaps {_GAPS}: {slope.tolist()}"

    def test_the_penalty_pulls_back(self) -> None:
        """The gradient lowers a probability that is above the reference's, and raises one that is below."""
        policy = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(self.make().penalty(policy, torch.tensor([-0.7, 0.7], dtype=torch.float64)).sum(), policy)
        assert slope[0] > 0 > slope[1], f"gradients at gaps -0.7 and 0.7 are {slope.tolist()}; the first must be above 0, the second below"

    def test_each_token_is_on_its_own(self) -> None:
        """The value of a token does not depend on the other tokens."""
        policy, reference = torch.linspace(-3.0, -0.1, 6), torch.linspace(-1.0, -2.5, 6)
        for method in (self.make().estimate, self.make().penalty):
            whole, parts = method(policy, reference), [method(policy[cut], reference[cut]) for cut in (slice(0, 2), slice(2, 6))]
            assert torch.equal(whole, torch.cat(parts)), f"{method.__name__} of a token depends on the tokens beside it"

    def test_the_penalty_has_the_value_of_the_estimate(self) -> None:
        """Penalty and estimate have equal values."""
        policy, reference = torch.tensor([-1.0, -0.2, -3.0]).double(), torch.tensor([-1.5, -0.1, -3.0]).double()
        near = torch.allclose(self.make().penalty(policy, reference), self.make().estimate(policy, reference), atol=1e-12)
        assert near, "penalty has another value than estimate"

    def test_in_the_reward_it_is_the_estimate(self) -> None:
        """In a reward, the KL of each token is ``estimate`` in float64."""
        policy, reference = np.array([-1.0, -0.25, -3.0], np.float32), np.array([-1.5, -0.125, -3.0], np.float32)
        expected = self.make().estimate(*(torch.from_numpy(one.astype(np.float64)) for one in (policy, reference)))
        assert np.allclose(reward_kl(policy, reference, self.make()), expected.numpy(), rtol=1e-9, atol=1e-12), "in the reward it differs"

    def test_in_expectation_the_penalty_has_the_gradient_of_its_divergence(self) -> None:
        """In expectation over the policy's tokens, the penalty has the gradient of the divergence that ``gradient`` names. Not checked with
        ``gradient = ""``."""
        if not self.gradient:
            return
        reference = torch.tensor([0.3, -1.2, 0.9, 0.1], dtype=torch.float64).log_softmax(0)
        logits = torch.tensor([1.0, -0.4, 0.2, -1.1], dtype=torch.float64, requires_grad=True)
        logprobs = logits.log_softmax(0)
        exact = (logprobs.exp() * (logprobs - reference)) if self.gradient == "policy" else (reference.exp() * (reference - logprobs))
        (expected,) = torch.autograd.grad(exact.sum(), logits, retain_graph=True)
        (got,) = torch.autograd.grad((logprobs.detach().exp() * self.make().penalty(logprobs, reference)).sum(), logits)
        assert torch.allclose(got, expected, atol=self.tolerance), f"{got.tolist()} against {expected.tolist()} of the divergence"
