"""Options of the ColossalAI training backend: ``[training.options]``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ColossalOptions"]


class ColossalOptions(BaseModel):
    """Options of the ``colossalai`` training backend."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    attention: Literal["sdpa", "eager"] = Field(default="sdpa", description="attention implementation of the model")
    adam: Literal["auto", "torch", "hybrid"] = Field(
        default="auto", description="hybrid: ColossalAI's fused HybridAdam, which needs CUDA; auto: that on CUDA, torch's AdamW on a CPU"
    )
    sequence_parallel: Literal["none", "split_gather"] = Field(
        default="none",
        description="split_gather: between attention and projections each of the -tp ranks keeps only its part of a sequence",
    )
    ranks_deadline: float = Field(
        default=600.0, ge=1, le=604_800, description="seconds that one trainer rank waits for another before it gives up"
    )
