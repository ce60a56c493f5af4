"""The options in ``[inference.options]`` for this backend."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["SglangOptions"]


class SglangOptions(BaseModel):
    """Options of the sglang inference backend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_running_requests: int = Field(default=256, ge=1, description="most completions that the engine decodes at once")
    deterministic: bool = Field(
        default=True,
        description="draws depend only on the request, by kernels that do not depend on the batch; false: SGLang's faster kernels, on GPUs",
    )
    data_parallel_size: int = Field(default=1, ge=1, description="copies of the model in this one engine, which share its requests")
    silence_seconds: float = Field(
        default=300.0, gt=0, allow_inf_nan=False, description="an engine that sends nothing for this long counts as dead, and is ended"
    )
    start_seconds: float = Field(
        default=1800.0, gt=0, allow_inf_nan=False, description="an engine that has not loaded the model after this long counts as dead"
    )
    engine: dict[str, Any] = Field(
        default={}, description="any other argument of SGLang's ServerArgs, by its name there; the engine checks it when it is created"
    )
