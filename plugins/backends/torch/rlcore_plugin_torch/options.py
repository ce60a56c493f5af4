"""Options of the torch training backend: ``[training.options]``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["TorchOptions"]


class TorchOptions(BaseModel):
    """Options of the ``torch`` training backend."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    threads: int | None = Field(default=None, ge=1, description="CPU threads of torch in this process; none: as rlcore divides the cores")
    attention: Literal["sdpa", "eager"] = Field(default="sdpa", description="attention implementation of the model")
    packing: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="forwards without padding, each prompt once and its completions as branches; auto: if the model computes the same so",
    )
    logits_chunk: int | None = Field(
        default=None, ge=1, description="entries of the vocabulary whose logits are in memory at a time; none: as many as suit the device"
    )
    head_dtype: Literal["compute", "float32"] = Field(
        default="compute",
        description="of the projection onto the vocabulary; float32: exact also if training.dtype is bfloat16, several times slower",
    )
    activations: Literal["keep", "recompute", "offload"] = Field(
        default="keep",
        description="until the backward pass: keep all; recompute: keep each layer's input, and run the layer again; offload: those inputs "
        "in host memory",
    )
    offload: tuple[Literal["optimizer", "reference"], ...] = Field(
        default=(), description="what lives in host memory, and is on the device only while it is used: optimizer (its moments), reference"
    )
    ranks_deadline: float = Field(default=600.0, gt=0, description="seconds that one trainer rank waits for another before it gives up")
