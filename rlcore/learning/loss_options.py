"""Options of the losses that the core registers."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ClippedOptions"]


class ClippedOptions(BaseModel):
    """Options of the clipped surrogate: the policy ratio is held within ``[1 - clip_eps_low, 1 + clip_eps_high]``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    clip_eps_low: float = Field(default=0.2, gt=0.0, le=1.0, description="how far the ratio may fall below 1 before its gradient stops")
    clip_eps_high: float = Field(
        default=0.2, gt=0.0, allow_inf_nan=False, description="how far it may rise above 1 before its gradient stops"
    )
    dual_clip: Annotated[float, Field(gt=1.0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="ratio beyond which a token of negative advantage loses its gradient too; unset: no dual clip",
    )
