"""The torch backend with a model that computes in the dtype that it is loaded in, so that float64 shows differences of 1e-9."""

from __future__ import annotations

import torch
from rlcore_plugin_torch.backend import TorchBackend
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

from rlcore.api import TrainingContext

__all__ = ["ExactBackend"]


def _norm(self: Qwen2RMSNorm, hidden_states: torch.Tensor) -> torch.Tensor:
    """As in transformers, without the way through float32."""
    squares = hidden_states.pow(2).mean(-1, keepdim=True)
    return self.weight * (hidden_states * torch.rsqrt(squares + self.variance_epsilon))


class ExactBackend(TorchBackend):
    """Changes the norm of Qwen2 in its whole process once it is set up."""

    def setup(self, context: TrainingContext) -> None:
        if context.dtype == "float64":
            Qwen2RMSNorm.forward = _norm  # type: ignore[method-assign]
        super().setup(context)
