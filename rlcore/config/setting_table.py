"""The settings as a table: path, flags, type, default and help of every leaf of a model.

Also describes types in words, and converts the text of a flag to the setting's type. Text that does not convert stays text, for pydantic to
refuse. Everything is derived from the typed models, for the core's sections and for plugin options alike.
"""

from __future__ import annotations

import json
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rlcore.config.run_config import RewardEntrySection, RunConfig

__all__ = ["Setting", "alternatives", "arity", "core_settings", "expected", "from_text", "model_settings", "whole_type", "without_bounds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One leaf of the configuration.

    ``path`` is dotted. ``flags`` are the flags to show, short ones first, then the long one; ``spellings`` are all that work. ``long`` is
    the flag of a plugin's option that no other plugin has."""

    path: str
    flags: tuple[str, ...]
    spellings: tuple[str, ...]
    type: Any
    default: Any
    help: str
    owner: str = "core"
    long: str = ""

    @property
    def section(self) -> str:
        """The part before the first dot."""
        return self.path.partition(".")[0]

    @property
    def key(self) -> str:
        """The part after the last dot."""
        return self.path.rpartition(".")[2]

    @property
    def flag(self) -> str:
        """The flag to cite in a sentence: the first, which is the short one if there is one."""
        return self.flags[0]


def _sections() -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in RunConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield name, field.annotation


def _declared(field: FieldInfo) -> list[str]:
    extra = field.json_schema_extra
    flags = extra.get("flags", []) if isinstance(extra, dict) else []
    return [str(flag) for flag in flags] if isinstance(flags, list) else []


def _spellings(shown: tuple[str, ...], path: str) -> tuple[str, ...]:
    head, _, key = path.rpartition(".")
    every = [*shown, "--" + path.replace("_", "-")]
    every += ["--" + flag[2:].replace("-", "_") for flag in every if flag.startswith("--")]
    every += ["--" + flag[2:].replace("_", "-") for flag in every if flag.startswith("--")]
    exact = [f"--{head}.{key.replace('_', '-')}", f"--{path}"] if head else []  # the name of a tracker in it may contain both characters
    return tuple(dict.fromkeys([*every, *exact]))


@cache
def core_settings() -> Mapping[str, Setting]:
    """Return every leaf of ``RunConfig`` that one flag can set, by path. ``options`` and ``extra`` belong to plugins
    (``model_settings``)."""
    keys = Counter(key for _, section in _sections() for key in section.model_fields)
    table = {}
    for section_name, section in _sections():
        for key, field in section.model_fields.items():
            if key.endswith("options") or key == "extra":
                continue
            declared = _declared(field)
            own = [flag for flag in declared if flag.startswith("--")]
            if keys[key] == 1 and not own:
                own = ["--" + key.replace("_", "-")]
            shown = (*(flag for flag in declared if not flag.startswith("--")), *own)
            path = f"{section_name}.{key}"
            table[path] = _setting(path, shown, field, "core")
    table.update(_reward_settings())
    return table


def _reward_settings() -> dict[str, Setting]:
    flags = ("-rt", "--reward-type", "--reward")
    return {
        "rewards": Setting(
            path="rewards",
            flags=flags,
            spellings=(*flags, "--reward_type", "--rewards"),
            type=str,
            default=(),
            help="the reward; several: [[rewards]] in a file",
        ),
        "rewards.deadline": _setting("rewards.deadline", ("--reward-deadline",), RewardEntrySection.model_fields["deadline"], "core"),
    }


def _setting(path: str, shown: tuple[str, ...], field: FieldInfo, owner: str) -> Setting:
    default = field.get_default(call_default_factory=True)
    return Setting(
        path=path,
        flags=shown,
        spellings=_spellings(shown, path),
        type=whole_type(field),
        default=None if default is PydanticUndefined else default,
        help=field.description or "",
        owner=owner,
    )


def model_settings(model: type[BaseModel], prefix: str, owner: str, *, long: str = "") -> dict[str, Setting]:
    """Return the leaves of a plugin's options model under ``prefix`` (``algorithm.options``).

    The short form of the long flag is the key alone; the longest begins with ``long`` (``loss``; ``prefix`` if ``long`` is empty)."""
    table = {}
    for key, field in model.model_fields.items():
        setting = _setting(f"{prefix}.{key}", ("--" + key.replace("_", "-"),), field, owner)
        short, *longer = setting.spellings
        own = _spellings((f"--{long or prefix}.{key.replace('_', '-')}",), f"{long or prefix}.{key}")
        table[setting.path] = replace(setting, long=own[0], spellings=tuple(dict.fromkeys([short, *own, *longer])))
    return table


# --- types in words ----------------------------------------------------------------------------------------------------


def whole_type(field: FieldInfo) -> Any:
    """Return the field's type wrapped in its bounds again."""
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def without_bounds(annotation: Any) -> Any:
    """Return a type without its bounds."""
    return _peel(annotation)[0]


def _peel(annotation: Any) -> tuple[Any, dict[str, Any]]:
    """Return an annotation without ``Annotated``, and its bounds by name."""
    bounds: dict[str, Any] = {}
    while get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
        for item in metadata:
            for bound in item.metadata if isinstance(item, FieldInfo) else (item,):
                for name in ("ge", "gt", "le", "lt", "min_length"):
                    if getattr(bound, name, None) is not None:
                        bounds[name] = getattr(bound, name)
    return annotation, bounds


def alternatives(annotation: Any) -> list[Any]:
    """Return the members of a union, with their bounds, or the type itself."""
    inner = without_bounds(annotation)
    if get_origin(inner) in (Union, types.UnionType):
        return [member for part in get_args(inner) for member in alternatives(part)]
    return [annotation]


_BOUNDS = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
_WORDS = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a text", dict: "a table"}


def expected(annotation: Any) -> str:
    """Return the values that a setting of this type accepts, in words: "a whole number of at least 1, or auto"."""
    return ", or ".join(dict.fromkeys(_expected_one(part) for part in alternatives(annotation)))


def _expected_one(annotation: Any) -> str:
    inner, bounds = _peel(annotation)
    origin, parts = get_origin(inner), get_args(inner)
    if inner is type(None):
        return "none"
    if origin is Literal:
        words = [str(part) for part in parts]
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    if origin is tuple and len(parts) == 2 and parts[1] is not Ellipsis:
        return f"a pair, each {expected(parts[0])}"
    if origin in (tuple, list, set, frozenset):
        return f"a list, each item {expected(parts[0])}" if parts else "a list"
    if origin is dict:
        shape = get_origin(without_bounds(parts[1])) or parts[1]
        tables = {Any: "a table", dict: "a table of tables"}
        return tables.get(shape) or f"a table (JSON on the command line), each value {expected(parts[1])}"
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return "a table with " + ", ".join(inner.model_fields)
    if inner is str and bounds.get("min_length"):
        return "a text that is not empty"
    word = _WORDS.get(origin or inner, getattr(inner, "__name__", str(inner)))
    if bounds.keys() == {"ge", "le"}:
        return f"{word} from {_bound(bounds['ge'])} to {_bound(bounds['le'])}"
    limits = [f"{words} {_bound(bounds[name])}" for name, words in _BOUNDS.items() if name in bounds]
    return f"{word} {' and '.join(limits)}" if limits else word


def _bound(value: Any) -> str:
    """Return it without a final .0: typing keeps one annotation for bounds 0 and 0.0, whichever came first in the process."""
    return str(value).removesuffix(".0")


_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def arity(annotation: Any) -> str | int:
    """Return how many words a flag takes: ``"bool"`` (none, or true/false), ``"many"``, 2 for a pair, else 1."""
    for part in alternatives(annotation):
        inner = without_bounds(part)
        origin, parts = get_origin(inner), get_args(inner)
        if inner is bool:
            return "bool"
        if origin is tuple and len(parts) == 2 and parts[1] is not Ellipsis:
            return 2
        if origin in (tuple, list, set, frozenset):
            return "many"
    return 1


def from_text(words: Sequence[str], annotation: Any) -> Any:
    """Return the value that the words of one flag mean. "none" becomes None if the setting may be None, and an empty list for names."""
    options = [without_bounds(part) for part in alternatives(annotation)]
    if type(None) in options and list(words) == ["none"]:
        return None
    for option in options:
        origin, parts = get_origin(option), get_args(option)
        if origin in (tuple, list, set, frozenset) and not (len(words) == 1 and str in options):
            if len(words) == 1 and isinstance(listed := _json(words[0]), list):  # the form that a file uses
                return listed
            if list(words) == ["none"] and parts[1:] == (...,):
                return []
            items = [parts[0]] * len(words) if parts else [str] * len(words)
            return [from_text([word], item) for word, item in zip(words, items, strict=True)]
    if len(words) != 1:
        return list(words)
    return _scalar(words[0], options)


def _scalar(word: str, options: Sequence[Any]) -> Any:
    for option in options:
        if get_origin(option) is Literal:
            match = next((value for value in get_args(option) if str(value) == word), None)
            if match is not None:
                return match
        if option is bool and word.lower() in _TRUE + _FALSE:
            return word.lower() in _TRUE
        if option in (int, float):
            number = _number(word, option)
            if number is not None:
                return number
        if (get_origin(option) or option) is dict or (isinstance(option, type) and issubclass(option, BaseModel)):
            return _json(word)
    return word


def _number(word: str, kind: type[int] | type[float]) -> int | float | None:
    try:
        return kind(word)
    except ValueError:
        return None


def _json(word: str) -> Any:
    try:
        return json.loads(word)
    except (ValueError, RecursionError):
        return word
