"""From a pydantic error to one sentence: what the user typed, the value, the rule, who owns the setting, what to type instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from rlcore.config.layers import Draft, get_path, spoken
from rlcore.config.settings import Setting, bare, core_settings, expected, whole_type
from rlcore.contracts.errors import ConfigError
from rlcore.host.blame import closest

__all__ = ["refusal", "unknown_option"]

_LONGEST = 80
_BY_TYPE = frozenset(
    {
        *("int_type", "int_parsing", "int_from_float", "float_type", "float_parsing", "finite_number", "bool_type", "bool_parsing"),
        *("string_type", "string_too_short", "literal_error", "greater_than", "greater_than_equal", "less_than", "less_than_equal"),
        *("tuple_type", "list_type", "dict_type", "model_type", "missing", "too_long", "too_short", "none_required"),
    }
)
"""Kinds of error that the type in words says better than pydantic's message."""


def refusal(error: ValidationError, draft: Draft, model: type[BaseModel], *, prefix: str = "", owner: str = "core") -> ConfigError:
    """The first error of a validation. ``prefix`` is the path of ``model`` in the configuration ("" for the whole)."""
    first = error.errors(include_url=False)[0]
    inner, annotation = _locate(model, first["loc"])
    path = ".".join(part for part in (prefix, inner) if part)
    if first["type"] == "extra_forbidden":
        return ConfigError(_unknown(path, draft, _siblings(model, inner), owner))
    if not path or (not inner and first["type"] != "model_type"):
        place = draft.owner(prefix)
        head = f"{place.place(prefix)}: " if place else ""
        return ConfigError(f"{head}[{prefix}] ({owner}): {_message(first)}")
    rule = f"must be {expected(annotation)}" if first["type"] in _BY_TYPE and annotation is not None else _message(first)
    if path == "rewards" or (path.startswith("rewards.") and first["type"] == "missing" and ".options." not in path):
        rule = 'must be a list of tables with a name each, written [[rewards]] and name = "…"'
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        rule = f"must be a table, written [{path}]"
    return ConfigError(_sentence(path, get_path(draft.data, path), rule, draft, owner))


def _message(error: Any) -> str:
    text = str(error["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return " ".join(text.replace("Input should be", "must be").split())


def _sentence(path: str, value: Any, rule: str, draft: Draft, owner: str) -> str:
    layer = draft.owner(path)
    setting = core_settings().get(path)
    hint = _example(setting) if setting else ""
    if layer is not None and layer.name == "flag":
        typed = layer.place(path)
        return f"{layer.said(path, value)}: {path} ({owner}) {rule}" + (f"; type {typed} {hint}" if hint else "; see --help")
    where = f"{layer.place(path)}: " if layer else ""
    key = path.rpartition(".")[2]
    written = f"; write {key} = {_toml(setting.default)}" if setting and hint else ""
    return f"{where}{path} = {_toml(value)} ({owner}) {rule}{written}"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…", ensure_ascii=False)
    return spoken(value) if not isinstance(value, list | tuple) else str(list(value))


def _example(setting: Setting) -> str:
    default = setting.default
    return "" if default is None or default in ("", (), {}) else f"{spoken(default)} (the default)"


def _locate(model: type[BaseModel], loc: Sequence[int | str]) -> tuple[str, Any]:
    """The dotted path that the user knows, and its type (None for what the model does not have)."""
    path: list[str] = []
    current: Any = model
    for part in loc:
        inner = bare(current)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            path.append(str(part))
            if part not in inner.model_fields:
                return ".".join(path), None
            current = whole_type(inner.model_fields[str(part)])
            continue
        items = get_args(inner)
        item = bare(items[0]) if get_origin(inner) in (tuple, list) and items else None
        if not (isinstance(item, type) and issubclass(item, BaseModel) and isinstance(part, int)):
            break
        path.append(str(part))
        current = item
    return ".".join(path), current


def _siblings(model: type[BaseModel], path: str) -> list[str]:
    parts = path.split(".")[:-1]
    annotation = _locate(model, [int(part) if part.isdigit() else part for part in parts])[1] if parts else model
    inner = bare(annotation)
    return list(inner.model_fields) if isinstance(inner, type) and issubclass(inner, BaseModel) else []


def _unknown(path: str, draft: Draft, siblings: Sequence[str], owner: str) -> str:
    layer = draft.owner(path)
    where = f"{layer.place(path)}: " if layer else ""
    head, _, key = path.rpartition(".")
    known = [*siblings, *_elsewhere(key)]
    what = f"{path} is not a setting of {f'[{head}]' if head else 'rlcore'} ({owner})"
    return f"{where}{what}{_hint(key, known)}; rlcore show config lists every setting"


def _hint(key: str, known: Sequence[str]) -> str:
    exact = next((item for item in known if item.rpartition(".")[2] == key), None)
    return f"; it belongs to [{exact.rpartition('.')[0]}]" if exact and "." in exact else closest(key, list(known))


def _elsewhere(key: str) -> list[str]:
    return [path for path, setting in core_settings().items() if setting.key == key]


def unknown_option(path: str, draft: Draft, known: Sequence[str], owner: str) -> ConfigError:
    """An option that none of the chosen plugins has; ``owner`` names those that were asked."""
    layer = draft.owner(path)
    where = f"{layer.place(path)}: " if layer else ""
    key = path.rpartition(".")[2]
    choices = f"it has {', '.join(known)}" if known else "it has no options"
    return ConfigError(f"{where}{path} is not an option of {owner}{closest(key, list(known))}; {choices}")
