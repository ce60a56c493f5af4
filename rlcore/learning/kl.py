"""Estimates of KL(policy || reference) per token from the log probabilities of the tokens taken.

Source: Schulman, "Approximating KL divergence" (2020): k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d, with d = reference - policy.
No estimate is clamped flat: where k3 would leave the numbers (d > 10 nats, the very tokens that drifted furthest) it goes on along its
tangent, so its value is finite and its gradient never vanishes.

A good estimate of the divergence need not have its gradient. On the policy's own data, in expectation: k2's gradient is that of
KL(policy || reference); k3's is that of KL(reference || policy), which pulls the same way and is what GRPO's paper minimises; k1's is
zero, so as a penalty it lends its value and takes k2's gradient (``kl_penalty``). The absolute log ratio pulls every token with the
same force, however near it is. In the reward no gradient is taken and k1 is the unbiased one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

__all__ = ["K3_TANGENT", "RATIO_TANGENT", "Kl", "bounded_exp", "kl_estimate", "kl_penalty", "reward_kl"]

K3_TANGENT = 10.0
"""Nats beyond which k3 continues as a straight line of slope exp(10) - 1."""


RATIO_TANGENT = 20.0
"""The same for ratios of probabilities, which are no penalty and may go further: slope exp(20)."""


class Kl(StrEnum):
    """Which estimate; the value is what users type as ``kl_kind``."""

    K1 = "k1"
    K2 = "k2"
    K3 = "k3"
    ABSOLUTE = "absolute"


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
        case Kl.ABSOLUTE:
            return difference.abs()


def kl_penalty(logprobs: torch.Tensor, reference: torch.Tensor, kind: Kl | str) -> torch.Tensor:
    """[n], [n] -> [n]: the value of ``kl_estimate``, with a gradient that a loss may use: k1 takes k2's, for its own is zero in
    expectation (it is the score function)."""
    if Kl(kind) is not Kl.K1:
        return kl_estimate(logprobs, reference, kind)
    pull = kl_estimate(logprobs, reference, Kl.K2)
    return kl_estimate(logprobs.detach(), reference, kind) + (pull - pull.detach())


def reward_kl(logprobs: np.ndarray, reference: np.ndarray, kind: str) -> np.ndarray:
    """The estimate that goes into the reward, without a gradient: [N], [N] -> float64[N]. k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d,
    absolute = |d|, with d = reference - policy (Schulman 2020)."""
    difference = reference.astype(np.float64) - logprobs.astype(np.float64)
    match kind:
        case "k1":
            return -difference
        case "k2":
            return 0.5 * difference**2
        case "k3":
            inside = np.minimum(difference, K3_TANGENT)
            return np.exp(inside) * (1.0 + difference - inside) - 1.0 - difference
        case "absolute":
            return np.abs(difference)
    raise ValueError(f"there is no KL estimate {kind!r}; it is one of k1, k2, k3, absolute")
