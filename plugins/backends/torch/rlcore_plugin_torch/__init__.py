"""Training on a Hugging Face model with torch. This module only says so; torch is imported on first use."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import TrainingBackendSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_training_backends() -> Sequence[TrainingBackendSpec]:
    """Offer the backend ``torch``."""
    return [
        TrainingBackendSpec(
            name="torch",
            target="rlcore_plugin_torch.backend:TorchBackend",
            config="rlcore_plugin_torch.options:TorchOptions",
            summary="AdamW on a Hugging Face causal language model, data-parallel ranks, CPU or CUDA, fp32 or bf16",
            requires_module="torch",
            preference=10,
        )
    ]
