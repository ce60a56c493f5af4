"""Options that users set. This module is imported whenever a run is configured, so it imports no judging code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from rlcore_plugin_extraction import Extraction

__all__ = ["CallOptions", "GymOptions", "SchemaOptions", "TrlCallOptions", "TrlOptions", "VerlCallOptions", "VerlOptions"]

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class CallOptions(BaseModel):
    """Options common to rewards that call a function of the user's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    right: float = Field(default=1.0, gt=0, description="a response with at least this value counts as right: accuracy 1, else 0")
    columns: tuple[str, ...] = Field(default=(), description="columns of the row that it reads in addition to those in its signature")


class _Named(BaseModel):
    function: str = Field(description="./file.py:NAME, relative to the folder where the command is typed, or package.module:NAME")

    @field_validator("function")
    @classmethod
    def _where(cls, value: str) -> str:
        place, _, name = value.rpartition(":")
        if not place or not _NAME.fullmatch(name) or not (place.endswith(".py") or _NAME.fullmatch(place)):
            raise ValueError(f"function {value!r} must be ./file.py:NAME or package.module:NAME")
        if not place.endswith(".py"):
            return value
        path = Path(place).expanduser().resolve()
        if not path.is_file():
            raise ValueError(f"function {value!r}: there is no file {path}")
        return f"{path}:{name}"


class TrlCallOptions(CallOptions):
    """Options of a function of TRL."""

    form: Literal["auto", "conversational", "text"] = Field(
        default="auto",
        description="argument of the function: lists of messages, or text; auto: text if the row has a prompt that is text, as in TRL",
    )
    batch: Literal["single", "group"] = Field(
        default="single",
        description="single: a call for each response, so that one that hangs affects only itself; group: one call for all of a prompt",
    )
    not_applicable: Literal["mask", "nothing"] = Field(
        default="mask", description="a value None (or NaN): mask, the response does not train; nothing: it adds 0 to other rewards"
    )


class TrlOptions(TrlCallOptions, _Named):
    """Options of ``trl_function``."""


class VerlCallOptions(CallOptions):
    """Options of a function of verl."""

    ground_truth: str = Field(
        default="", description='column of the ground truth (dots enter objects); "": reward_model.ground_truth, ground_truth or gt_answer'
    )
    data_source: str = Field(default="", description="data_source for rows that have no such column")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="further arguments of the function: verl's reward_kwargs")

    @field_validator("kwargs")
    @classmethod
    def _further(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted({"data_source", "solution_str", "ground_truth", "extra_info"} & value.keys()):
            raise ValueError(f"kwargs may not contain {' and '.join(taken)}, which each row gives")
        return value


class VerlOptions(VerlCallOptions, _Named):
    """Options of ``verl_function``."""


class GymOptions(BaseModel):
    """Options of ``reasoning_gym``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    correct_score: float = Field(default=1.0, gt=0, description="value of a score of 1; lower scores get their share")
    extract: Extraction = Field(default=Extraction(by=("answer_tags",)), description="how the answer is marked")
    dataset: str = Field(default="", description='name of the data set, for rows that do not name one; "": metadata.source_dataset')


class SchemaOptions(BaseModel):
    """Options of ``json_schema``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    correct_score: float = Field(default=1.0, gt=0, description="value of JSON that fits")
    file: str = Field(default="", description='a file with the schema; "": the column of the row')
    column: str = Field(default="json_schema", min_length=1, description="column that has the schema, an object or its text")
    where: Literal["auto", "text", "fenced"] = Field(
        default="auto", description="auto: the whole text if it is JSON, else the last ```json block; text, fenced: only this one"
    )
    think: Literal["auto", "required", "ignore"] = Field(default="auto", description="as in extract: only text after </think>")
    max_chars: int = Field(default=100_000, ge=1, description="longest text that is read; a longer one is wrong")

    @field_validator("file")
    @classmethod
    def _absolute(cls, value: str) -> str:
        path = Path(value).expanduser().resolve()
        if value and not path.is_file():
            raise ValueError(f"file {value!r}: there is no file {path}")
        return str(path) if value else ""
