"""Options of the torch training backend: ``[training.options]``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["TorchOptions"]


class TorchOptions(BaseModel):
    """Options of the ``torch`` training backend."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    threads: int | None = Field(default=None, ge=1, description="CPU threads of torch in this process; none: the share that rlcore assigns")
    attention: Literal["sdpa", "eager"] = Field(default="sdpa", description="attention implementation of the model")
    packing: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="forwards without padding, each prompt once with its completions as branches; auto: if the model computes the same",
    )
    logits_chunk: int | None = Field(
        default=None, ge=1, description="vocabulary entries whose logits are in memory at a time; none: a number that suits the device"
    )
    head_dtype: Literal["compute", "float32"] = Field(
        default="compute",
        description="of the projection onto the vocabulary; float32: exact even if training.dtype is bfloat16, but several times slower",
    )
    activations: Literal["keep", "recompute", "offload"] = Field(
        default="keep",
        description="kept until the backward pass; keep: all; recompute: each layer's input, and the layer runs again; offload: those "
        "inputs in host memory",
    )
    offload: tuple[Literal["optimizer", "reference"], ...] = Field(
        default=(), description="parts that stay in host memory and are on the device only while in use: optimizer (moments), reference"
    )
    ranks_deadline: float = Field(default=600.0, gt=0, description="seconds that one trainer rank waits for another before it gives up")
