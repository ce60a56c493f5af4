"""What ``[inference.options]`` may hold for this backend."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["TransformersOptions"]


class TransformersOptions(BaseModel):
    """Options of the transformers inference backend."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    threads: int | None = Field(default=None, ge=1, description="CPU threads of torch in this process; none: as rlcore divides the cores")
    attention: Literal["sdpa", "eager"] = Field(
        default="sdpa", description="attention of the model; eager for models that cap attention logits"
    )
    max_rows: int | None = Field(default=None, ge=1, description="completions decoded side by side at most; None: only -imbs bounds them")
    fused: bool = Field(default=True, description="decode step in few operations if the model is of a kind it serves; false: the plain one")
