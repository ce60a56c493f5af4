"""Estimates of KL(policy || reference) per token from the log probabilities of the sampled tokens.

Source: Schulman, "Approximating KL divergence" (2020): k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d, with d = reference - policy. No estimate
is clamped to a constant. Beyond d = 10 nats k3 would overflow, at the very tokens that drifted furthest. There it continues along its
tangent, so its value is finite and its gradient never vanishes.

A good estimate of the divergence need not have its gradient. On the policy's own data, in expectation:

- k2's gradient is that of KL(policy || reference).
- k3's gradient is that of KL(reference || policy), which pulls in the same direction; GRPO's paper minimises it.
- k1's gradient is zero, so as a penalty it has its own value and k2's gradient.
- The absolute log ratio pulls every token with the same force, however near it is.

In the reward no gradient is taken, and k1 is the unbiased estimate.
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
"""The same limit for ratios of probabilities, which are not penalties and may grow further: slope exp(20)."""


def bounded_exp(x: torch.Tensor, limit: float) -> torch.Tensor:
    """Return exp(x) up to ``limit``, and its tangent beyond: once differentiable everywhere, finite, never flat. Any shape."""
    inside = x.clamp(max=limit)
    return inside.exp() * (1.0 + (x - inside))


class K1(KlEstimator):
    """-d. As a penalty it has the gradient of k2, because its own is zero in expectation (it is the score function)."""

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
    """d|."""

    def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        return (reference - logprobs).abs()


def reward_kl(logprobs: np.ndarray, reference: np.ndarray, estimator: KlEstimator) -> np.ndarray:
    """Return the estimate that goes into the reward, in float64 and without a gradient: [N], [N] -> float64[N].

    Raise RunError, naming the estimator, if the result has another shape, or is not finite for finite log probabilities. Those of tokens
    outside the loss need not be finite.
    """
    import torch  # imported here because only runs with KL in the reward need it

    values = estimator.estimate(*(torch.from_numpy(one.astype(np.float64)) for one in (logprobs, reference))).numpy()
    if values.shape != logprobs.shape or not np.isfinite(values[np.isfinite(logprobs - reference)]).all():
        what = f"shape {list(values.shape)}" if values.shape != logprobs.shape else "values that are not finite"
        raise RunError(f"KL estimator {type(estimator).__name__} returned {what} in estimate; it must return one finite value per token")
    return values
