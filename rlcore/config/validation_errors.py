"""Turn a pydantic error into one sentence: the typed text, the value, the rule, the owner of the setting, and what to type instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError

from rlcore.config.layers import Draft, as_typed, get_path
from rlcore.config.plugin_selection import LISTS
from rlcore.config.setting_table import Setting, alternatives, core_settings, expected, whole_type, without_bounds
from rlcore.contracts.errors import ConfigError
from rlcore.registry.error_context import closest

__all__ = ["unknown_option", "validation_error"]

_LONGEST = 80
_BY_TYPE = frozenset(
    {
        *("int_type", "int_parsing", "int_from_float", "float_type", "float_parsing", "finite_number", "bool_type", "bool_parsing"),
        *("string_type", "string_too_short", "literal_error", "greater_than", "greater_than_equal", "less_than", "less_than_equal"),
        *("tuple_type", "list_type", "dict_type", "model_type", "missing", "too_long", "too_short", "none_required"),
    }
)
"""Kinds of error that the type in words explains better than pydantic's message."""


def validation_error(error: ValidationError, draft: Draft, model: type[BaseModel], *, prefix: str = "", owner: str = "core") -> ConfigError:
    """Return the first error of a validation. For a setting with several shapes, return the error that is deepest inside the setting.

    :param prefix: the path of ``model`` in the configuration ("" for the whole configuration)."""
    errors = error.errors(include_url=False)
    first, place = errors[0], _locate(model, errors[0]["loc"])
    for other in errors[1:]:
        found = _locate(model, other["loc"])
        deeper = found.path.startswith(f"{place.path}.") and len(place.path.split(".")) < len(first["loc"])
        beside = found.path.rpartition(".")[0] == place.path.rpartition(".")[0]
        if deeper or (beside and first["type"] == "missing" and other["type"] == "extra_forbidden"):
            first, place = other, found
    path = ".".join(part for part in (prefix, place.path) if part)
    if first["type"] == "extra_forbidden":
        return ConfigError(_unknown(path, draft, place.fields, owner))
    if not path or (not place.path and first["type"] != "model_type"):
        return ConfigError(f"{draft.where(prefix)}[{prefix}] ({owner}): {_message(first)}")
    annotation = place.type
    if first["type"] == "missing" and (prefix or place.path.startswith(("data.", "sources."))):
        return ConfigError(_lacking(path, annotation, draft, owner))
    rule = f"must be {expected(annotation)}" if first["type"] in _BY_TYPE and annotation is not None else _message(first)
    if path == "rewards" or (path.startswith("rewards.") and first["type"] == "missing" and ".options." not in path):
        rule = 'must be a list of tables, each with a name, written [[rewards]] and name = "…"'
    if _is_model(annotation) and first["type"] != "value_error":  # otherwise it is a table, and one of its own rules was broken
        rule = f"must be a table, written [{path}]"
    by_name = [tables for _, tables in LISTS.values()]
    if path.endswith("options") or path.rpartition(".")[0] in by_name:
        rule += f", written [{path}{'.NAME' if path in by_name else ''}]"
    most = first["ctx"]["le"] if first["type"] == "less_than_equal" else None
    return ConfigError(_sentence(path, get_path(draft.data, path), rule, draft, owner, most))


def _lacking(path: str, annotation: Any, draft: Draft, owner: str) -> str:
    """Return the sentence for a setting that has no default and was not given."""
    head, _, key = path.rpartition(".")
    table = "" if any(part.isdigit() for part in head.split(".")) else f" in [{head}]"
    return f"{draft.where(head)}{head} has no {key}, which {owner} needs: {expected(annotation)}; write {key} = …{table}"


def _message(error: Any) -> str:
    text = str(error["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return " ".join(text.replace("Input should be", "must be").split())


def _sentence(path: str, value: Any, rule: str, draft: Draft, owner: str, most: float | None) -> str:
    layer = draft.owner(path)
    setting = core_settings().get(path)
    hint = "" if setting is None else _example(setting) if most is None else f"{most} or less"
    if layer is not None and layer.name == "flag":
        typed = layer.place(path)
        return f"{layer.said(path, value)}: {path} ({owner}) {rule}" + (f"; type {typed} {hint}" if hint else "; see --help")
    key = path.rpartition(".")[2]
    written = f"; write {key} = {_toml(setting.default)}" if setting and hint else ""
    return f"{draft.where(path)}{path} = {_toml(value)} ({owner}) {rule}{written}"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…", ensure_ascii=False)
    return as_typed(value) if not isinstance(value, list | tuple) else str(list(value))


def _example(setting: Setting) -> str:
    default = setting.default
    return "" if default is None or default in ("", (), {}) else f"{as_typed(default)} (the default)"


class _Place(NamedTuple):
    """The place of an error: the dotted path that the user knows, its type (None for an unknown key), and its sibling fields."""

    path: str
    type: Any
    fields: Sequence[str]


def _locate(model: type[BaseModel], loc: Sequence[int | str]) -> _Place:
    path: list[str] = []
    current: Any = model
    fields: Sequence[str] = ()
    for part in loc:
        shapes = [shape for shape in alternatives(current) if shape is not NoneType]
        inner = without_bounds(shapes[0] if len(shapes) == 1 else current)
        if _is_model(inner):
            path.append(str(part))
            fields = list(inner.model_fields)
            known = [field for name, field in inner.model_fields.items() if part in (name, *getattr(field.validation_alias, "choices", ()))]
            if not known:
                return _Place(".".join(path), None, fields)
            current = whole_type(known[0])
        elif isinstance(part, int) and _holds_models(inner):
            path.append(str(part))
            current = get_args(inner)[0]
        elif _holds_tables(inner):
            path.append(str(part))
            current = get_args(inner)[1]
        elif shape := next((shape for shape in alternatives(current) if _is_meant(without_bounds(shape), part)), None):
            current = shape
        else:
            break
    return _Place(".".join(path), current, fields)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _holds_models(annotation: Any) -> bool:
    items = get_args(annotation)[:1] if get_origin(annotation) in (tuple, list) else ()
    return any(_is_model(without_bounds(shape)) for item in items for shape in alternatives(item))


def _holds_tables(annotation: Any) -> bool:
    inner = without_bounds(get_args(annotation)[1]) if get_origin(annotation) is dict else None
    return get_origin(inner) is dict or _is_model(inner)


def _is_meant(shape: Any, part: int | str) -> bool:
    """Return whether this shape is the one that pydantic names in the location of an error. Only shapes that hold settings count."""
    return (_is_model(shape) and part == shape.__name__) or (_holds_models(shape) and str(part).startswith(get_origin(shape).__name__))


def _unknown(path: str, draft: Draft, siblings: Sequence[str], owner: str) -> str:
    head, _, key = path.rpartition(".")
    settings = core_settings().items()
    known = [*siblings, *(path for path, setting in settings if setting.key == key or f"-{key}" in setting.flags)]
    known += [] if head or len(known) > len(siblings) else [setting.key for _, setting in settings]
    what = f"{path} is not a setting of {f'[{head}]' if head else 'rlcore'} ({owner})"
    of_an_item = any(part.isdigit() for part in head.split("."))
    choices = f"it has {', '.join(siblings)}" if of_an_item else "rlcore show config lists every setting"
    return f"{draft.where(path)}{what}{_hint(key, known)}; {choices}"


def _hint(key: str, known: Sequence[str]) -> str:
    exact = [item for item in known if item.rpartition(".")[2] == key and "." in item]
    if exact:
        return "; it belongs to " + " or ".join(f"[{item.rpartition('.')[0]}]" for item in exact)
    return next((f", did you mean {item.rpartition('.')[2]!r}" for item in known if "." in item), "") or closest(key, list(known))


def unknown_option(path: str, draft: Draft, known: Sequence[str], owner: str) -> ConfigError:
    """Return the error for an option that none of the chosen plugins has. ``owner`` names the plugins that were searched."""
    key = path.rpartition(".")[2]
    choices = f"it has {', '.join(known)}" if known else "it has no options"
    return ConfigError(f"{draft.where(path)}{path} is not an option of {owner}{closest(key, list(known))}; {choices}")
