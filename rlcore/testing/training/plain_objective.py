"""An objective to test training backends with."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rlcore.contracts.batches import LossBatch
from rlcore.contracts.interfaces import Need

__all__ = ["PlainObjective", "WatchingObjective"]


class PlainObjective:
    """``-sum(weights * advantages * exp(logprobs - old))``: the policy gradient with importance ratio, nothing else."""

    needs: frozenset[Need] = frozenset()

    def __call__(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """Return [n] -> the scalar to call ``backward`` on, and ``loss``."""
        loss = -(batch.weights * batch.advantages * (logprobs - batch.old_logprobs).exp()).sum()
        return loss, {"loss": loss.detach()}


class WatchingObjective(PlainObjective):
    """The same, which keeps the entropy that it receives at each place of the batch."""

    needs = frozenset({Need.ENTROPY})

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def __call__(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """Return the plain objective."""
        assert batch.entropy is not None, "an update hands no entropies to an objective that needs them"
        self.seen += zip(batch.extras["place"].tolist(), batch.entropy.detach().tolist(), strict=True)
        return super().__call__(logprobs, batch)
