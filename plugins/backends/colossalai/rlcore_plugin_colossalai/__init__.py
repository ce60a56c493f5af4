"""Training by ColossalAI. This module only registers the backend; colossalai is imported when the backend is created."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlcore.api import TrainingBackendSpec, TrainingCapabilities, hookimpl

rlcore_api = "2.0"

CAPABILITIES = TrainingCapabilities(
    layouts=frozenset({"single", "data", "tensor", "pipeline", "zero"}),
    dtypes=frozenset({"float32", "bfloat16"}),
    devices=frozenset({"cpu", "cuda"}),
    reproducible="seeded",
    implementation="transformers",
)
"""The capabilities that the spec and the backend class declare, and that its refusals refer to."""


@hookimpl
def rlcore_register_training_backends() -> Sequence[TrainingBackendSpec]:
    """Offer the backend ``colossalai``. Its preference is below 0, so that it is only used if a user names it."""
    return [
        TrainingBackendSpec(
            name="colossalai",
            target="rlcore_plugin_colossalai.colossal_backend:ColossalBackend",
            config="rlcore_plugin_colossalai.options:ColossalOptions",
            summary="ColossalAI 0.5: data, ZeRO 1 and 2, tensor and pipeline parallel ranks, in a separate environment",
            requires_module="colossalai",
            install="rlcore env build colossalai-cpu, and --training-environment with the folder that it prints",
            capabilities=CAPABILITIES,
            preference=-1,
        )
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """Return ColossalAI's refusal of a layout, in one sentence, before anything starts. Checks the model too if its folder is on this
    machine."""
    training = config.training
    if training.name != "colossalai":
        return []
    from rlcore_plugin_colossalai.colossal_layout import layout_problem, model_problem

    problem = layout_problem(
        world=training.num_trainers,
        tensor=training.tensor_parallel_size,
        pipeline=training.pipeline_parallel_size,
        zero=training.zero_stage,
        dtype=training.dtype,
        sequence_parallel=training.options.get("sequence_parallel", "none"),
    )
    if problem:
        return [problem]
    try:
        settings = json.loads((Path(config.model.model) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []  # the ranks read the file, and report the error
    if not isinstance(settings, dict):
        return []
    problem = model_problem(settings, tensor=training.tensor_parallel_size, pipeline=training.pipeline_parallel_size)
    return [f"model {config.model.model!r}: {problem}"] if problem else []
