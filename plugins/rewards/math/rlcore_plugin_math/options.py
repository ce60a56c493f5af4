"""What users can set. Import-light: read whenever a run is configured."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["BoxedOptions", "MathOptions", "ThinkAnswerOptions"]


class MathOptions(BaseModel):
    """Common to both rewards."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    correct_score: float = Field(default=10.0, gt=0, allow_inf_nan=False, description="value of a correct answer")
    format_score: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="value of a wrong answer in the right format")
    time_limit: float = Field(default=3.0, gt=0, le=60, description="seconds for one comparison; an answer that needs more is wrong")
    max_chars: int = Field(default=1000, ge=1, description="longest answer that is compared; a longer one is wrong")
    unparseable_gold: Literal["error", "text"] = Field(
        default="error", description="a gt_answer that is neither text nor a formula: refuse the row, or compare it as text"
    )

    @model_validator(mode="after")
    def _format_below_correct(self) -> Self:
        if self.format_score >= self.correct_score:
            raise ValueError(f"format_score {self.format_score:g} must be below correct_score {self.correct_score:g}")
        return self


class BoxedOptions(MathOptions):
    """Options of ``boxed``."""


class ThinkAnswerOptions(MathOptions):
    """Options of ``think_answer_tags``."""
