"""Training on a Hugging Face model with torch. This module only says so; torch is imported on first use."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import TrainingBackendSpec, TrainingCapabilities, hookimpl

rlcore_api = "1.0"

CAPABILITIES = TrainingCapabilities(
    layouts=frozenset({"single", "data", "tensor", "zero"}),
    dtypes=frozenset({"float32", "bfloat16", "float64"}),
    devices=frozenset({"cpu", "cuda"}),
    sleeps=True,
    kinds=frozenset({"full", "adapter"}),
    lora=True,
    reproducible="bitwise",
    implementation="transformers",
)
"""What the spec, the class and its refusals go by."""


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
            capabilities=CAPABILITIES,
            preference=10,
        )
    ]
