"""Training of a Hugging Face model with torch. This module only registers the backend; torch is imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from rlcore.api import OptimizerSpec, TrainingBackendSpec, TrainingCapabilities, hookimpl

rlcore_api = "2.0"

CAPABILITIES = TrainingCapabilities(
    layouts=frozenset({"single", "data", "tensor", "zero"}),
    dtypes=frozenset({"float32", "bfloat16", "float64"}),
    devices=frozenset({"cpu", "cuda"}),
    sleeps=True,
    kinds=frozenset({"full", "adapter"}),
    lora=True,
    model_hooks=True,
    optimizers=True,
    syncs_reference=True,
    exports=frozenset({"bfloat16", "float16"}),
    entropies=True,
    reproducible="bitwise",
    implementation="transformers",
)
"""The capabilities that the spec and the backend class declare, and that its refusals refer to."""

MUON = OptimizerSpec(
    name="muon",
    target="rlcore_plugin_torch.muon:Muon",
    config="rlcore_plugin_torch.muon:MuonOptions",
    summary="Muon for the matrices of layers, AdamW for embeddings, output head, norms and biases",
    source="Muon: An optimizer for hidden layers (Jordan et al., 2024); Muon is Scalable for LLM Training (arXiv 2502.16982), section 2.2",
)


@hookimpl
def rlcore_register_optimizers() -> Sequence[OptimizerSpec]:
    """Offer Muon, for any trainer that takes a chosen optimizer."""
    return [MUON]


@hookimpl
def rlcore_register_training_backends() -> Sequence[TrainingBackendSpec]:
    """Offer the backend ``torch``."""
    return [
        TrainingBackendSpec(
            name="torch",
            target="rlcore_plugin_torch.backend:TorchBackend",
            config="rlcore_plugin_torch.options:TorchOptions",
            summary="AdamW on a Hugging Face causal language model, DDP, FSDP2 and tensor-parallel ranks, CPU or CUDA, fp32 or bf16",
            requires_module="torch",
            capabilities=CAPABILITIES,
            preference=10,
        )
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """Return the error if the run's model cannot be divided as asked or take adapters. Imports torch only if the run asks for one of
    these."""
    training = config.training
    asks = training.tensor_parallel_size > 1 or training.zero_stage or training.lora_rank or training.options.get("activations") != "keep"
    # If the trainers use another Python, or torch is not installed here, this process cannot load the model as the trainers do.
    if training.name != "torch" or not asks or training.environment or not config.model.model or find_spec("torch") is None:
        return []
    from rlcore_plugin_torch.before_run import model_problem

    return [problem] if (problem := model_problem(config)) else []


@hookimpl
def rlcore_note_run(config: Any) -> list[str]:
    """Describe how the trainers divide the model, if there are several or the flags ask for a division."""
    training = config.training
    if training.name != "torch" or (training.num_trainers == 1 and training.zero_stage == 0):
        return []
    from rlcore_plugin_torch.layout import Layout

    layout = Layout(size=training.num_trainers, tensor=training.tensor_parallel_size, zero=training.zero_stage)
    return [f"trainers: {layout}"]
