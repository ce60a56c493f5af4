"""Estimates of KL(policy || reference) per token from the log probabilities of the tokens taken.

Source: Schulman, "Approximating KL divergence" (2020): k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d, with d = reference - policy.
No estimate is clamped flat: where k3 would leave the numbers (d > 10 nats, the very tokens that drifted furthest) it goes on along its
tangent, so its value is finite and its gradient never vanishes.

A good estimate of the divergence need not have its gradient. On the policy's own data, in expectation: k2's gradient is that of
KL(policy || reference); k3's is that of KL(reference || policy), which pulls the same way and is what GRPO's paper minimises; k1's is
zero, so as a penalty it lends its value and takes k2's gradient. The absolute log ratio pulls every token with the
same force, however near it is. In the reward no gradient is taken and k1 is the unbiased one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlcore.contracts.errors import RunError
from rlcore.contracts.loss_wrappers import KlEstimator

if TYPE_CHECKING:
    import torch

__all__ = ["K1", "K2", "K3", "K3_TANGENT", "RATIO_TANGENT", "AbsoluteKl", "bounded_exp", "reward_kl"]

K3_TANGENT = 10.0
"""Nats beyond which k3 continues as a straight line of slope exp(10) - 1."""


RATIO_TANGENT = 20.0
"""The same for ratios of probabilities, which are no penalty and may go further: slope exp(20)."""


def bounded_exp(x: torch.Tensor, limit: float) -> torch.Tensor:
    """exp(x) up to ``limit``, its tangent beyond: once differentiable everywhere, finite, never flat. Any shape."""
    inside = x.clamp(max=limit)
    return inside.exp() * (1.0 + (x - inside))


class K1(KlEstimator):
    """-d; as a penalty with the gradient of k2, for its own is zero in expectation (it is the score function)."""

    def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        return -(reference - logprobs)

    def penalty(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        pull = K2().estimate(logprobs, reference)
        return self.estimate(logprobs.detach(), reference) + (pull - pull.detach())


class K2(KlEstimator):
    """d^2 / 2."""

    def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        return 0.5 * (reference - logprobs) ** 2


class K3(KlEstimator):
    """exp(d) - 1 - d."""

    def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        difference = reference - logprobs
        return bounded_exp(difference, K3_TANGENT) - 1.0 - difference


class AbsoluteKl(KlEstimator):
    """|d|."""

    def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        return (reference - logprobs).abs()


def reward_kl(logprobs: np.ndarray, reference: np.ndarray, estimator: KlEstimator) -> np.ndarray:
    """The estimate that goes into the reward, in float64 and without a gradient: [N], [N] -> float64[N].
    Raises RunError, naming the estimator, if what it returns has another shape, or is not finite for log probabilities that are (those of
    tokens outside the loss need not be)."""
    import torch  # here: a run whose KL is in no reward needs none for this

    values = estimator.estimate(*(torch.from_numpy(one.astype(np.float64)) for one in (logprobs, reference))).numpy()
    if values.shape != logprobs.shape or not np.isfinite(values[np.isfinite(logprobs - reference)]).all():
        what = f"shape {list(values.shape)}" if values.shape != logprobs.shape else "values that are not finite"
        raise RunError(f"KL estimator {type(estimator).__name__} returned {what} in estimate; it must be finite, one per token")
    return values
