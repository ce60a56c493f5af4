"""Options that users set. This module is imported whenever a run is configured, so it imports little."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from rlcore_plugin_extraction import Extraction

__all__ = ["BoxedOptions", "MathOptions", "ThinkAnswerOptions"]


class MathOptions(BaseModel):
    """Options common to both rewards. ``malformed_score`` <= ``format_score`` <= half of ``correct_score``: no answer gains by being
    worse."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    correct_score: float = Field(default=10.0, gt=0, description="value of a correct answer")
    format_score: float = Field(default=0.0, description="value of a wrong answer in the right format")
    malformed_score: float = Field(default=0.0, description="value of a response in the wrong format, and of a truncated one")
    require_eos: bool = Field(
        default=True, description="a response truncated at max_new_tokens gets malformed_score; false: it is judged if its format is valid"
    )
    strictness: Literal["standard", "strict"] = Field(
        default="standard",
        description="strict: units must match, plain decimals are exact, formulas are never right as text",
    )
    missing_unit: Literal["auto", "accept", "refuse"] = Field(
        default="auto",
        description="5 beside 5 cm: one side lacks the unit. auto: right by the standard strictness, wrong by the strict one",
    )
    absolute_tolerance: float = Field(
        default=0.0, ge=0, description="a number this far from the gold one is right; 0.5 and more accepts other whole numbers"
    )
    relative_tolerance: float = Field(
        default=0.0, ge=0, lt=1, description="the same as a share of the gold number: 0.001 is one in a thousand"
    )
    stated_digits: bool = Field(default=False, description="a gold decimal stands for every number that rounds to it: 125.66 for 40\\pi")
    time_limit: float = Field(default=3.0, gt=0, le=60, description="seconds for one comparison; an answer that needs more is wrong")
    max_chars: int = Field(default=1000, ge=1, le=10_000, description="longest answer that is compared; a longer one is wrong")
    unparseable_gold: Literal["error", "text"] = Field(
        default="error", description="a gt_answer that is neither text nor a formula: refuse the row, or compare it as text"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.format_score > self.correct_score / 2:
            raise ValueError(
                f"format_score {self.format_score:g} must be at most half of correct_score {self.correct_score:g}: "
                f"a right answer that is only text gets that half, and a wrong one must not get more"
            )
        if self.malformed_score > self.format_score:
            raise ValueError(
                f"malformed_score {self.malformed_score:g} must be at most format_score {self.format_score:g}, "
                f"or the wrong format would pay; set malformed_score = {self.format_score:g} or lower"
            )
        return self


class BoxedOptions(MathOptions):
    """Options of ``boxed``."""

    extract: Extraction = Field(
        default=Extraction(by=("boxed",)),
        description="how the answer is marked; any other way than the box needs a system prompt that asks for it",
    )


class ThinkAnswerOptions(MathOptions):
    """Options of ``think_answer_tags``."""

    extract: Extraction = Field(
        default=Extraction(by=("text",)), description="part of the content of <answer> that is the answer; by = 'text': all of it"
    )
