"""Inference by the vLLM engine. This module only registers the backend; vllm is imported when the backend is created."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlcore.api import InferenceBackendSpec, InferenceCapabilities, InFlight, WeightTransferSpec, hookimpl

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
    transfers=frozenset({"host", "vllm_ipc", "vllm_nccl"}),
    kinds=frozenset({"full", "adapter"}),
    sampling=frozenset({"min_p"}),
    reproducible="seeded",
)
"""The capabilities that the spec and the backend class declare, and that its refusals refer to.

The tests of this package have run all of it on the CPU. The code for CUDA was written from vLLM's sources and has not been run, because no
GPU was available.
"""


@hookimpl
def rlcore_register_inference_backends() -> Sequence[InferenceBackendSpec]:
    """Offer the backend ``vllm``."""
    return [
        InferenceBackendSpec(
            name="vllm",
            target="rlcore_plugin_vllm.vllm_backend:VllmBackend",
            config="rlcore_plugin_vllm.options:VllmOptions",
            summary="the vLLM engine, in the producer's process or in several; continuous batching with a prefix cache",
            requires_module="vllm",
            install="rlcore env build vllm-cpu, and --inference-environment with the folder that it prints",
            capabilities=CAPABILITIES,
        )
    ]


@hookimpl
def rlcore_register_weight_transfers() -> Sequence[WeightTransferSpec]:
    """Offer vLLM's own transfers between GPUs. A user must name them; ``auto`` never chooses them."""
    return [
        WeightTransferSpec(
            name=name,
            target=f"rlcore_plugin_vllm.engine_transfers:{target}",
            summary=summary,
            reach=reach,
            way=name,
            preference=-1,
            unusable="" if list(Path("/dev").glob("nvidia[0-9]*")) else "this machine has no NVIDIA GPU",
        )
        for name, target, reach, summary in (
            ("vllm_ipc", "VllmIpc", "host", "vLLM's transfer by CUDA IPC, for a trainer and an engine on one device"),
            ("vllm_nccl", "VllmNccl", "cluster", "vLLM's transfer by NCCL, for a trainer and engines on separate devices"),
        )
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """Check that a shared device can hold both roles, by arithmetic, that vLLM's transfers reach the engines, and that vLLM supports the
    temperatures."""
    problems = [_transfer_problem(config)]
    if config.inference.name.lower() == "vllm":
        from rlcore_plugin_vllm.device_memory import memory_problem
        from rlcore_plugin_vllm.sampling_bounds import temperature_problem

        problems = [memory_problem(config), *problems, temperature_problem(config)]
    return [problem for problem in problems if problem]


def _transfer_problem(config: Any) -> str:
    """Return a sentence if the transfer cannot reach the engines where the run places them; "" if it can."""
    transport, colocated = config.weights.transport.lower(), config.run.placement == "colocated"
    if transport == "vllm_nccl" and colocated:
        return "--transport vllm_nccl connects several devices, but --placement colocated shares one; type --transport vllm_ipc"
    if transport != "vllm_ipc":
        return ""
    if not colocated:
        return "--transport vllm_ipc is for one device, but --placement split uses several; type --transport vllm_nccl"
    sizes = {
        "-i": config.inference.num_inferencer,
        "-ptp": config.inference.producer_tensor_parallel_size,
        "-t": config.training.num_trainers,
    }
    flag = next((flag for flag, size in sizes.items() if size > 1), "")
    return f"--transport vllm_ipc is for one trainer and one engine on one device; type {flag} 1, or --transport auto" if flag else ""


@hookimpl
def rlcore_note_run(config: Any) -> list[str]:
    """Describe the memory that a device shared by both roles will hold."""
    if config.inference.name.lower() != "vllm":
        return []
    from rlcore_plugin_vllm.device_memory import memory_remark

    return [remark] if (remark := memory_remark(config)) else []
