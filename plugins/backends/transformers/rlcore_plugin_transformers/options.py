"""The options in ``[inference.options]`` for this backend."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["TransformersOptions"]


class TransformersOptions(BaseModel):
    """Options of the transformers inference backend."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    threads: int | None = Field(default=None, ge=1, description="CPU threads of torch in this process; none: the share that rlcore assigns")
    attention: Literal["sdpa", "eager"] = Field(
        default="sdpa", description="attention of the model; eager for models that cap attention logits"
    )
    max_rows: int | None = Field(default=None, ge=1, description="most completions decoded at once; none: only -imbs limits them")
    fused: bool = Field(default=True, description="decode in few operations if the model's type is supported; false: the plain decode step")
