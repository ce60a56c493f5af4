"""The temperature of what is sampled for training, by policy version: constant, or from one value to another in equal steps.

A rollout carries the temperature it was sampled at, and is trained at that one: how old it is when it trains makes no difference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlcore.contracts.types import Sampling

__all__ = ["AnnealedSampling"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnealedSampling:
    """``sampling`` at version 0; ``end``: the temperature at version ``updates - 1``, which the last update trains on, and at any later
    one (None: constant). ``updates``: the horizon of the run."""

    sampling: Sampling
    end: float | None
    updates: int

    def at(self, version: int) -> Sampling:
        """How to sample what is leased at this policy version."""
        start, last = self.sampling.temperature, max(1, self.updates - 1)
        if self.end is None or version <= 0:
            return self.sampling
        # The end itself, not a sum that rounds beside it.
        reached = self.end if version >= last else start + (self.end - start) * (version / last)
        return replace(self.sampling, temperature=reached)
