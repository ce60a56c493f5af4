"""Estimates of KL(policy || reference) per token from the log probabilities of the tokens taken.

Source: Schulman, "Approximating KL divergence" (2020): k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d, with d = reference - policy.
As a penalty in the loss k1's gradient is zero in expectation on policy (it is the score function), so it belongs into the reward;
k2 and k3 push the policy back. No estimate is clamped flat: where k3 would leave the numbers (d > 10 nats, the very tokens that drifted
furthest) it goes on along its tangent, so its value is finite and its gradient never vanishes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["K3_TANGENT", "Kl", "bounded_exp", "kl_estimate"]

K3_TANGENT = 10.0
"""Nats beyond which k3 continues as a straight line of slope exp(10) - 1."""


class Kl(StrEnum):
    """Which estimate; the value is what users type as ``kl_kind``."""

    K1 = "k1"
    K2 = "k2"
    K3 = "k3"


def bounded_exp(x: torch.Tensor, limit: float) -> torch.Tensor:
    """exp(x) up to ``limit``, its tangent beyond: once differentiable everywhere, finite, never flat. Any shape."""
    inside = x.clamp(max=limit)
    return inside.exp() * (1.0 + (x - inside))


def kl_estimate(logprobs: torch.Tensor, reference: torch.Tensor, kind: Kl | str) -> torch.Tensor:
    """[n], [n] -> [n], differentiable in ``logprobs``. Raises ValueError for another ``kind``."""
    difference = reference - logprobs
    match Kl(kind):
        case Kl.K1:
            return -difference
        case Kl.K2:
            return 0.5 * difference.square()
        case Kl.K3:
            return bounded_exp(difference, K3_TANGENT) - 1.0 - difference
