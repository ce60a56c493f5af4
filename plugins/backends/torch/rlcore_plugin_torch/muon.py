"""Muon: matrices of layers move by an orthogonal matrix, all other parameters by AdamW. Imports torch when it is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import OptimizerFactory, OptimizerSettings
from rlcore_plugin_torch import MUON

if TYPE_CHECKING:
    import torch

__all__ = ["Muon", "MuonOptions"]


class MuonOptions(BaseModel):
    """Options of ``muon``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    momentum: float = Field(default=0.95, ge=0.0, lt=1.0, description="decay of the momentum of matrices")
    nesterov: bool = Field(default=True, description="Nesterov momentum")
    ns_steps: int = Field(default=5, ge=1, lt=100, description="Newton-Schulz iterations that make the momentum orthogonal")
    adjust_lr: Literal["match_rms_adamw", "original"] = Field(
        default="match_rms_adamw",
        description="match_rms_adamw: steps are as long as those of AdamW; original: scaled by the root of rows / columns, at least 1",
    )


class Muon(OptimizerFactory, spec=MUON):
    """Muon for the matrices of layers, AdamW for embeddings, the output head, vectors and stacks of matrices; vectors do not decay.

    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024); Liu et al., "Muon is Scalable for LLM
    Training" (arXiv 2502.16982), section 2.2, for ``match_rms_adamw``. torch makes the momentum orthogonal in bfloat16.
    """

    def __init__(self, options: MuonOptions | None = None) -> None:
        self._options = options or MuonOptions()

    def build(
        self, parameters: Mapping[str, torch.nn.Parameter], settings: OptimizerSettings, *, tables: Set[str]
    ) -> Sequence[torch.optim.Optimizer]:
        """Return Muon and AdamW, as far as they have parameters."""
        import torch

        options, hidden = self._options, {name for name, item in parameters.items() if item.ndim == 2 and name not in tables}
        rest = [(item, settings.weight_decay if item.ndim > 1 else 0.0) for name, item in parameters.items() if name not in hidden]
        made: list[torch.optim.Optimizer] = []
        if hidden:
            made.append(
                torch.optim.Muon(
                    [parameters[name] for name in parameters if name in hidden],
                    weight_decay=settings.weight_decay,
                    momentum=options.momentum,
                    nesterov=options.nesterov,
                    ns_steps=options.ns_steps,
                    adjust_lr_fn=options.adjust_lr,
                )
            )
        if rest:
            made.append(torch.optim.AdamW([{"params": [item], "weight_decay": decay} for item, decay in rest], betas=settings.betas))
        return made
