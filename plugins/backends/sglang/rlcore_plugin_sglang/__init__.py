"""Inference by the SGLang engine. This module only registers the backend; sglang is imported in the engine's own process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlcore.api import InferenceBackendSpec, InferenceCapabilities, InFlight, hookimpl

rlcore_api = "2.0"

CAPABILITIES = InferenceCapabilities(
    in_flight=InFlight.RESUME,
    sleeps=True,
    sleeps_on=frozenset({"cuda"}),
    scores=True,
    counter_noise=True,
    layouts=frozenset({"single", "tensor"}),
    dtypes=frozenset({"float32", "bfloat16"}),
    devices=frozenset({"cpu", "cuda"}),
    transfers=frozenset({"host"}),
    kinds=frozenset({"full", "adapter"}),
    reproducible="seeded",
)
"""The capabilities that the spec and the backend class declare, and that its refusals refer to.

The tests of this package have run all of it on the CPU. The code for CUDA was written from SGLang's sources and has not been run, because
no GPU was available.
"""


@hookimpl
def rlcore_register_inference_backends() -> Sequence[InferenceBackendSpec]:
    """Offer the backend ``sglang``."""
    return [
        InferenceBackendSpec(
            name="sglang",
            target="rlcore_plugin_sglang.sglang_backend:SglangBackend",
            config="rlcore_plugin_sglang.options:SglangOptions",
            summary="the SGLang engine, in a separate process; continuous batching with a radix cache",
            requires_module="sglang",
            install="rlcore env build sglang-cpu, and --inference-environment with the folder that it prints",
            capabilities=CAPABILITIES,
        )
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """Check that SGLang samples as the run asks."""
    if config.inference.name.lower() != "sglang":
        return []
    from rlcore_plugin_sglang.sampling_limits import run_problem

    return [problem] if (problem := run_problem(config)) else []
