"""The base class of the sections of the configuration, the types of their settings, and how a setting is declared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "AMONG_SOURCES",
    "AboveOne",
    "Accident",
    "Auto",
    "Count",
    "Decay",
    "Dtype",
    "Finite",
    "Folder",
    "Fraction",
    "Item",
    "Lax",
    "Listed",
    "Name",
    "NonNegative",
    "Partial",
    "PathKind",
    "PluginName",
    "Policy",
    "Positive",
    "Seconds",
    "Section",
    "Share",
    "Source",
    "TrainingDtype",
    "Whole",
    "Workers",
    "of_a_source",
    "setting",
]

Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Workers = Annotated[int, Field(ge=1, le=100_000)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
AboveOne = Annotated[float, Field(gt=1, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]


class PathKind(Enum):
    """The way in which a text is a path. The type of a setting names it, and ``file_paths.py`` applies it."""

    ALWAYS = "a path"
    PERHAPS = "a path, or a name of the hub or of a data source"
    CODE = "the name of a plugin, or FILE.py:NAME"


Folder = Annotated[str, Field(min_length=1), PathKind.ALWAYS]
Source = Annotated[str, Field(min_length=1), PathKind.PERHAPS]
PluginName = Annotated[str, Field(min_length=1), PathKind.CODE]
Auto = Literal["auto"]
Policy = Literal["train", "mask", "stop"]
"""The effect of a verdict: it trains, it masks its rollout, or it ends the run. A failure never trains."""
Accident = Literal["mask", "stop"]
Dtype = Literal["float32", "bfloat16", "float16"]
TrainingDtype = Literal["float32", "bfloat16", "float64"]
"""Without float16: its gradients need loss scaling, which no part of the contract provides."""
Item = TypeVar("Item")
Lax = Field(strict=False)
"""Accept lists from TOML and JSON for tuples. Their items stay strict."""
Listed = Annotated[tuple[Item, ...], Lax]


def setting(default: Any, *flags: str, help: str, **constraints: Any) -> Any:
    """Declare a leaf: its default, the flags in addition to the long one that its key makes, and one line of help.

    Extra long flags (``--reward``) are aliases. If a key occurs in several sections, the first long flag given here replaces the one of the
    key.
    """
    return Field(default, description=help, json_schema_extra={"flags": list(flags)}, **constraints)


class Section(BaseModel):
    """A frozen section. Unknown keys are refused, and types are not converted (an integer is valid as a float)."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=False,
        protected_namespaces=(),
        ser_json_inf_nan="constants",
        defer_build=True,  # workers unpickle the configuration and never validate one
    )


@dataclass(frozen=True, slots=True)
class Partial:
    """Marks a table that may hold any settings of a section. It is validated where it is merged with the others."""

    section: type[BaseModel]


_OF_THE_RUN = {
    "data": ("template", "chat_template", "tools", "control_tokens"),
    "sampling": ("stop",),
    "algorithm": ("updates_per_batch", "epochs_per_batch", "old_logprobs", "dynamic_batching", "filter_limit"),
    "eval": ("eval_interval", "eval_save_dir"),
    "rewards": (),
}
"""Sections that a source may set, and their settings that it may not."""


AMONG_SOURCES = ("data.sampler", "data.sampler_options")
"""Settings that the run has besides each source: of the run, the sampler of its sources."""


def of_a_source(path: str) -> bool:
    """Return whether each source may have its own value of a setting; all other settings are of the whole run."""
    section, _, rest = path.partition(".")
    return section in _OF_THE_RUN and rest.partition(".")[0] not in _OF_THE_RUN[section]
