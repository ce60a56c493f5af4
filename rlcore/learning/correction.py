"""Weights that correct for data of another policy, from the difference of the trainer's old and the sampler's log probabilities.

The ratio old / sampler has two sources, and one weight corrects both. With fresh data it is the mismatch of two engines that should compute
one model. With stale data it is the distance that the policy has moved since the tokens were sampled. The trainer's log probabilities
before the update's first step are then the proximal policy of decoupled PPO. The weight multiplies the loss, not the penalties, and has no
gradient. Tokens that it removes stay in every denominator.

Sources: decoupled: Hilton et al. (arXiv 2110.00641) and AReaL (arXiv 2505.24298), decoupled PPO objective; truncated importance sampling:
Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (2025), C = 2; masked: IcePop (arXiv 2510.18855), 0.5
to 5; sequence level: Liu et al., "When Speed Kills Stability" (2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from rlcore.contracts.batches import LossBatch
from rlcore.contracts.loss_wrappers import Correction
from rlcore.learning.kl import RATIO_TANGENT, bounded_exp
from rlcore.registry.builtin import CORRECTIONS

if TYPE_CHECKING:
    import torch

__all__ = ["Decoupled", "Masked", "SequenceMasked", "SequenceTruncated", "Truncated"]


@dataclass(frozen=True)
class _Ratio(Correction):
    """w = old / sampler of a token, or W, the product of w over a rollout, at each of its tokens. Bounds are inclusive."""

    bounds: tuple[float, float] = (0.0, inf)

    def weights(self, batch: LossBatch) -> tuple[torch.Tensor, torch.Tensor]:
        gap, (low, high) = (batch.old_logprobs - batch.rollout_logprobs).detach(), self.bounds
        free = bounded_exp(batch.row_sum(gap) if self.per == "rollout" else gap, RATIO_TANGENT)  # finite, whatever an engine reports
        cut = (free < low) | (free > high)
        return free.masked_fill(cut, 0.0) if self.masks else free.clamp(low, high), cut


class Decoupled(_Ratio, spec=CORRECTIONS["decoupled"]):
    """w, unchanged."""


class Truncated(_Ratio, spec=CORRECTIONS["truncated"]):
    """w, clamped to the range."""


class Masked(_Ratio, spec=CORRECTIONS["masked"]):
    """w inside the range, 0 outside."""


class SequenceTruncated(_Ratio, spec=CORRECTIONS["sequence_truncated"]):
    """W, clamped to the range."""


class SequenceMasked(_Ratio, spec=CORRECTIONS["sequence_masked"]):
    """W inside the range, 0 outside."""
