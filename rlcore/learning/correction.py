"""Weights that correct for data of another policy: what the sampler's log probabilities say against the trainer's old ones.

The ratio old / sampler has two sources, and one weight answers both. With fresh data it is the mismatch of two engines that should
compute one model; with stale data it is how far the policy has moved since the tokens were drawn, and the trainer's log probabilities
before the update's first step are then the proximal policy of decoupled PPO. The weight multiplies the loss, not the penalties, and
carries no gradient; what it takes out stays in every denominator.

Sources: decoupled: Hilton et al. (arXiv 2110.00641) and AReaL (arXiv 2505.24298), decoupled PPO objective; truncated importance sampling:
Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (2025), C = 2; masked: IcePop (arXiv 2510.18855),
0.5 to 5; sequence level: Liu et al., "When Speed Kills Stability" (2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING

from rlcore.contracts.batches import LossBatch
from rlcore.learning.kl import RATIO_TANGENT, bounded_exp

if TYPE_CHECKING:
    import torch

__all__ = ["Correction", "Mismatch"]


class Mismatch(StrEnum):
    """Which weight, as users type it for ``mismatch_correction``: w = old / sampler of a token, W their product over its rollout."""

    NONE = "none"
    DECOUPLED = "decoupled"
    """w as it is."""
    TRUNCATED = "truncated"
    """w, held within the range."""
    MASKED = "masked"
    """w within the range, 0 outside."""
    SEQUENCE_TRUNCATED = "sequence_truncated"
    """W at every token of the rollout, held within the range."""
    SEQUENCE_MASKED = "sequence_masked"
    """W at every token of the rollout where it lies within the range, 0 outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A correction with its bounds, inclusive."""

    kind: Mismatch
    low: float = 0.0
    high: float = inf

    def weights(self, batch: LossBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """[n] weight of each token, without gradient; bool[n], where the range acted. Raises nothing: every weight is finite."""
        gap = (batch.old_logprobs - batch.rollout_logprobs).detach()
        if self.kind in (Mismatch.SEQUENCE_TRUNCATED, Mismatch.SEQUENCE_MASKED):
            gap = batch.row_sum(gap)
        free = bounded_exp(gap, RATIO_TANGENT)  # finite, whatever an engine reports
        cut = (free < self.low) | (free > self.high)
        if self.kind in (Mismatch.MASKED, Mismatch.SEQUENCE_MASKED):
            return free.masked_fill(cut, 0.0), cut
        return free.clamp(self.low, self.high), cut
