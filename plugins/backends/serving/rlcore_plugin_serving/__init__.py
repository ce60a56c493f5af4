"""Inference by servers that somebody else runs, and what the backends of serving engines share. This module only says so; the client is
imported when the backend is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlcore.api import InferenceBackendSpec, InferenceCapabilities, InFlight, hookimpl

rlcore_api = "2.0"

CAPABILITIES = InferenceCapabilities(
    in_flight=InFlight.RESUME,
    scores=True,
    counter_noise=True,
    layouts=frozenset({"single"}),
    dtypes=frozenset({"float32", "bfloat16"}),
    devices=frozenset({"cpu", "cuda"}),
    transfers=frozenset({"host", "vllm_nccl"}),
    reproducible="seeded",
)
"""What the spec, the class and its refusals go by. Layout, device and dtype are the server's own affair: a run's --inference-device is not
looked at, and --inference-dtype says how exact it is if the server does not. ``vllm_nccl`` has not run: no GPU was at hand."""


@hookimpl
def rlcore_register_inference_backends() -> Sequence[InferenceBackendSpec]:
    """Offer the backend ``endpoint``."""
    return [
        InferenceBackendSpec(
            name="endpoint",
            target="rlcore_plugin_serving.endpoint_backend:EndpointBackend",
            config="rlcore_plugin_serving.endpoint_options:EndpointOptions",
            summary="vLLM or SGLang servers that somebody else runs, by address; weights by a folder that both sides see",
            requires_module="httpx2",
            install="pip install httpx2",
            capabilities=CAPABILITIES,
        )
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """Each producer has a server, and weights have a way to it."""
    if config.inference.name.lower() != "endpoint":
        return []
    from rlcore_plugin_serving.endpoint_rules import run_problems

    return run_problems(config)
