"""Inference by external servers, and the code that the backends of serving engines share. This module only registers the backend; the
client is imported when the backend is created."""

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
"""The capabilities that the spec and the backend class declare, and that its refusals refer to.

The server decides on layout, device and dtype. A run's --inference-device is ignored; --inference-dtype sets the expected precision if the
server does not report its own. ``vllm_nccl`` has not been run, because no GPU was available.
"""


@hookimpl
def rlcore_register_inference_backends() -> Sequence[InferenceBackendSpec]:
    """Offer the backend ``endpoint``."""
    return [
        InferenceBackendSpec(
            name="endpoint",
            target="rlcore_plugin_serving.endpoint_backend:EndpointBackend",
            config="rlcore_plugin_serving.endpoint_options:EndpointOptions",
            summary="external vLLM or SGLang servers, by address; weights through a folder that both sides see",
            requires_module="httpx2",
            install="pip install httpx2",
            capabilities=CAPABILITIES,
        )
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """Check that each producer has a server, and that weights can reach it."""
    if config.inference.name.lower() != "endpoint":
        return []
    from rlcore_plugin_serving.endpoint_rules import run_problems

    return run_problems(config)
