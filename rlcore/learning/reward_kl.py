"""The KL estimate that goes into the reward: numpy, float64, no gradient. In the loss it is ``kl.py``."""

from __future__ import annotations

import numpy as np

from rlcore.learning.kl import K3_TANGENT

__all__ = ["reward_kl"]


def reward_kl(logprobs: np.ndarray, reference: np.ndarray, kind: str) -> np.ndarray:
    """[N], [N] -> float64[N]: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d, absolute = |d|, with
    d = reference - policy (Schulman 2020)."""
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
