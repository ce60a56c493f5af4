"""An objective to test training backends with."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rlcore.contracts.batches import LossBatch
from rlcore.contracts.interfaces import Need

__all__ = ["PlainObjective"]


class PlainObjective:
    """``-sum(weights * advantages * exp(logprobs - old))``: the policy gradient with importance ratio, nothing else."""

    needs: frozenset[Need] = frozenset()

    def __call__(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """Return [n] -> the scalar to call ``backward`` on, and ``loss``."""
        loss = -(batch.weights * batch.advantages * (logprobs - batch.old_logprobs).exp()).sum()
        return loss, {"loss": loss.detach()}
