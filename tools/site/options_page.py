"""The page of the settings of a run: every leaf of ``RunConfig`` with its flags, values, default and help, and an anchor of its own."""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rlcore.config.run_config import RunConfig
from rlcore.config.setting_table import alternatives, core_settings, expected, whole_type, without_bounds
from tools.site.markdown import escape, prose

__all__ = ["default_in_words", "options_page"]

_INTRO = """# Settings of a run

Each setting has a place in `run.toml`, such as `lora_rank` in `[training]`, and most have flags of `rlcore train`.
A flag is typed with hyphens or with underscores; the long form `--training.lora_rank` always works, too.
Options of plugins are on the pages of [their kinds](kinds.md).

"""


def options_page() -> str:
    """Return the page, in the order of the configuration."""
    return _INTRO + "".join(_section(name, field) for name, field in RunConfig.model_fields.items())


def _section(name: str, field: FieldInfo) -> str:
    model = _model(field.annotation)
    listed = model is not field.annotation
    doc = (model.__doc__ or "").partition(": ")[2]
    title = f"[[{name}]]" if listed else f"[{name}]"
    return f"({name})=\n## {title}\n\n{prose(doc[:1].upper() + doc[1:])}" + _leaves(name, model)


def _leaves(prefix: str, model: type[BaseModel]) -> str:
    text = ""
    for key, field in model.model_fields.items():
        path = f"{prefix}.{key}"
        inner = _model(field.annotation)
        if inner is not BaseModel and inner.__name__ != "DataSource":
            text += f"({path})=\n### {path}\n\n{prose(inner.__doc__)}" + _leaves(path, inner)
        else:
            text += _leaf(path, field)
    return text


def _leaf(path: str, field: FieldInfo) -> str:
    setting = core_settings().get("rewards" if path == "rewards.name" else path)
    flags = ", ".join(f"`{flag}`" for flag in setting.flags) if setting else "none"
    kind = whole_type(field)
    free = any(without_bounds(part) is Any for part in alternatives(kind))
    values = "a value of TOML" if free else escape(expected(kind))
    value = field.get_default(call_default_factory=True)
    shown = "required" if value is PydanticUndefined else default_in_words(value)
    told = escape(field.description or "")
    told = f"{told[:1].upper()}{told[1:]}.\n\n" if told else ""
    return f"({path})=\n### {path}\n\n{told}- Flags: {flags}\n- Values: {values}\n- Default: {shown}\n\n"


def default_in_words(value: Any) -> str:
    """Return a default as a user types it, as code; "none" for one that is empty."""
    if value is None or value in ((), [], {}, ""):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{' '.join(map(str, value))}`" if isinstance(value, tuple | list) else f"`{value}`"


def _model(annotation: Any) -> type[BaseModel]:
    """Return the section in a type, also in a list of it; BaseModel itself if there is none."""
    inner = without_bounds(annotation)
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return inner
    if get_origin(inner) in (tuple, list, Union, types.UnionType):
        return next((found for part in get_args(inner) if part is not ... and (found := _model(part)) is not BaseModel), BaseModel)
    return BaseModel
