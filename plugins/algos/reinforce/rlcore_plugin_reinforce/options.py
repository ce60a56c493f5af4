"""Options of the family's estimators."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ReinforcePlusPlusOptions"]


class ReinforcePlusPlusOptions(BaseModel):
    """Options of REINFORCE++."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    gamma: float = Field(default=1.0, gt=0.0, le=1.0, description="discount per token of the reward that comes at the end")
