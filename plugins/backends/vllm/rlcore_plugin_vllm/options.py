"""The options in ``[inference.options]`` for this backend."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["VllmOptions"]


class VllmOptions(BaseModel):
    """Options of the vllm inference backend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_num_seqs: int = Field(default=256, ge=1, description="most completions that the engine decodes at once")
    enforce_eager: bool = Field(default=True, description="run the model without compiling it")
    kv_cache_memory_bytes: int | None = Field(
        default=None,
        ge=1,
        description="bytes for keys and values; none: on the CPU enough for max_num_seqs, at most 4 GiB; otherwise vLLM decides",
    )
    pipeline_parallel_size: int = Field(default=1, ge=1, description="stages of layers that the model is split into; 1 on the CPU")
    device_memory_gib: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="memory of a device that trainer and engine share, to check that it holds both; none: as nvidia-smi reports",
    )
    own_process: bool | None = Field(
        default=None, description="run the engine in separate processes; none: if the model is spread over several devices"
    )
    engine: dict[str, Any] = Field(
        default={}, description="any other argument of vLLM's EngineArgs, by its name there; the engine checks it when it is created"
    )
