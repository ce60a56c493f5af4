"""Options that users set. This module is imported whenever a run is configured, so it imports no judging code."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlcore.api.sandbox import SandboxOptions

__all__ = ["CodeOptions"]


class CodeOptions(BaseModel):
    """Options of ``code``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    correct_score: float = Field(default=10.0, gt=0, description="value of a program that passes every test")
    format_score: float = Field(default=0.0, ge=0, description="value of a program that passes none")
    partial: bool = Field(
        default=False, description="run all tests; a program that passes some gets its share of correct_score, even if it guesses"
    )
    cpu_seconds: float = Field(default=5.0, gt=0, le=3600, description="CPU time of one test; a program that needs more is wrong")
    wall_seconds: float = Field(default=10.0, gt=0, le=3600, description="wall-clock time of one test")
    total_seconds: float = Field(
        default=40.0, gt=0, le=3600, description="wall-clock time of all tests of one response; deadline must exceed it by wall_seconds"
    )
    memory_mb: int = Field(default=1024, ge=64, description="memory of one test, in MiB")
    output_mb: float = Field(default=1.0, gt=0, le=1024, description="output of one test, in MiB; 4 x the expected output if that is more")
    processes: int = Field(default=64, ge=1, description="processes and threads of one test")
    absolute_tolerance: float = Field(default=1e-6, ge=0, description="error that is allowed if a decimal fraction is expected")
    relative_tolerance: float = Field(
        default=1e-6, ge=0, lt=1, description="the same, as a share of the expected value; the larger counts. Everything else is exact"
    )
    languages: tuple[Literal["python", "cpp", "javascript"], ...] = Field(
        default=("python",), min_length=1, description="languages of programs; other fences are ignored. Functions: Python only"
    )
    max_program_chars: int = Field(default=100_000, ge=1, description="longest program that is run; a longer one is wrong")
    max_tests: int = Field(default=100, ge=1, description="most tests of a row that are run; if it has more, its content determines which")
    sandbox: SandboxOptions = Field(default=SandboxOptions(), description="how programs are isolated")

    @property
    def closeness(self) -> tuple[float, float]:
        """(absolute, relative) error that is allowed if a decimal fraction is expected."""
        return self.absolute_tolerance, self.relative_tolerance

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.format_score >= self.correct_score:
            raise ValueError(f"format_score {self.format_score:g} must be below correct_score {self.correct_score:g}")
        if self.wall_seconds > self.total_seconds:
            raise ValueError(f"wall_seconds {self.wall_seconds:g} of one test is above total_seconds {self.total_seconds:g} of all")
        return self
