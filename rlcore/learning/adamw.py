"""AdamW as an optimizer that any trainer can build. Trainers have an AdamW of their own, with the same steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from rlcore.contracts.training_settings import OptimizerFactory, OptimizerSettings

if TYPE_CHECKING:
    import torch

__all__ = ["AdamW"]


class AdamW(OptimizerFactory):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2), without decay of vectors."""

    elementwise = True

    def build(
        self, parameters: Mapping[str, torch.nn.Parameter], settings: OptimizerSettings, *, tables: Set[str]
    ) -> Sequence[torch.optim.Optimizer]:
        """Return one optimizer with two groups: matrices, and tensors of one axis."""
        import torch

        kinds = ([item for item in parameters.values() if (item.ndim > 1) is many] for many in (True, False))
        decays = (settings.weight_decay, 0.0)
        groups = [{"params": kind, "weight_decay": decay} for kind, decay in zip(kinds, decays, strict=True) if kind]
        return [torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas)]
