"""Layers of settings: core < recipe < files from left to right < Python < flags. Tables merge; every other value replaces.

Keeps the layer of every value, so that a message can cite the text that the user typed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from rlcore.config.file_paths import relocated, seen_from
from rlcore.config.run_config import RunConfig
from rlcore.config.setting_table import Setting, core_settings, from_text
from rlcore.config.toml_text import line_of, read_toml
from rlcore.contracts.errors import ConfigError
from rlcore.contracts.specs import AlgorithmSpec

__all__ = [
    "TEMPLATE_VALUE",
    "Draft",
    "Layer",
    "LayerName",
    "Origin",
    "TypedFlag",
    "as_typed",
    "combine",
    "file_layer",
    "flag_layer",
    "get_path",
    "python_layer",
    "recipe_layer",
    "replaced",
]

_LONGEST = 80
_UNCHECKED = int | float | str
"""The type that an option of a missing plugin is read as."""
TEMPLATE_VALUE = dict[str, Any]
"""The type that a variable of the chat template is read as: any JSON value, or else a text."""

LayerName = Literal["core", "recipe", "file", "flag", "auto", "python"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a value: its layer, and the recipe, file or flag within that layer."""

    layer: LayerName
    detail: str = ""

    def __str__(self) -> str:
        return self.detail or self.layer

    def cite(self, path: str, value: Any) -> str:
        """Return the setting and its value, such as ``-zero 2`` or ``zero_stage = 2 (run.toml)``."""
        return f"{self} {as_typed(value)}" if self.layer == "flag" else f"{path.rpartition('.')[2]} = {as_typed(value)} ({self})"


class TypedFlag(NamedTuple):
    """A flag as it was typed: its spelling and its words, not yet converted to a type."""

    flag: str
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Settings from one source: nested ``data``, the ``text`` of a file, and the ``typed`` flags by path."""

    name: LayerName
    detail: str
    data: Mapping[str, Any]
    text: str = ""
    typed: Mapping[str, TypedFlag] = field(default_factory=dict)
    moved: Mapping[str, str] = field(default_factory=dict)
    """Current path -> path in this layer, for values that were moved."""

    def origin(self, path: str) -> Origin:
        """Return the origin of the value that this layer gives to ``path``."""
        return Origin(self.name, self._near(path) if self.typed else self.detail)

    def _near(self, path: str) -> str:
        while path not in self.typed and "." in path:
            path = path.rpartition(".")[0]
        return self.typed[path].flag if path in self.typed else self.detail

    def at(self, path: str, given: Any) -> Layer:
        """Return this layer for one flag that sets a ``path`` other than its own."""
        return replace(self, typed={path: given}) if isinstance(given, TypedFlag) else self

    def said(self, path: str, value: Any) -> str:
        """Return a flag with its words as they were typed, such as "-tbs 0" or "--dynamic-batching"."""
        flag, words = self.typed.get(path, TypedFlag(self.place(path), (as_typed(value),)))
        bare = (value is False and flag.startswith("--no-")) or (value is True and words == ("true",))
        return flag if bare else f"{flag} {' '.join(as_typed(word) for word in words)}"

    def place(self, path: str) -> str:
        """Return where the user finds the value, such as "run.toml, line 4", "-tbs" or "recipe dapo"."""
        if self.name == "file":
            now = max((known for known in self.moved if path.startswith(known)), key=len, default="")
            line = line_of(self.text, self.moved[now] + path.removeprefix(now) if now else path)
            return f"{self.detail}, line {line}" if line else self.detail
        return self.origin(path).detail


def file_layer(path: Path) -> Layer:
    """Return the settings of one TOML file. "none" becomes None if the setting may be None, and paths are relative to the file's folder."""
    data, text = read_toml(path)
    folder = "" if path.parent.resolve() == Path.cwd() else str(path.parent)
    return Layer(name="file", detail=str(path), data=relocated(data, RunConfig, partial(seen_from, folder), none="none"), text=text)


def python_layer(overrides: Mapping[str, Any], detail: str = "Python") -> Layer:
    """Return settings from Python: nested mappings, dotted paths, or plain keys named like the flags (``train_batch_size=8``)."""
    by_key = {setting.key: path for path, setting in core_settings().items() if setting.key not in ("name", "dtype", "device", "deadline")}
    data: dict[str, Any] = {}
    for key, given in overrides.items():
        if not isinstance(key, str) or not all(key.split(".")):
            raise ConfigError(f"{key!r} is not the key of a setting; write a key such as 'run.seed'")
        value: Any = given
        section = isinstance(value, Mapping) and key in RunConfig.model_fields
        path = key if "." in key or section else by_key.get(key, key)
        value = [{"name": value}] if path == "rewards" and isinstance(value, str) else value
        _merge(data, _nested(path, value), "", {}, None)
    return Layer(name="python", detail=detail, data=data)


def flag_layer(flags: Mapping[str, Any], settings: Mapping[str, Setting]) -> Layer:
    """Return the layer of typed flags by dotted path (``TypedFlag``, or a plain value). Each is converted to the type of its setting."""
    data: dict[str, Any] = {}
    typed: dict[str, TypedFlag] = {}
    for path, given in flags.items():
        value: Any = given
        if isinstance(given, TypedFlag):
            typed[path] = given
            value = from_text(given.words, settings[path].type if path in settings else _type_without_setting(path))
        elif path in settings:
            typed[path] = TypedFlag(settings[path].flag, (as_typed(given),))
        if path == "rewards" and isinstance(value, str):
            value = [{"name": value}]
        if path.startswith("rewards."):
            continue
        _merge(data, _nested(path, value), "", {}, None)
    return Layer(name="flag", detail="flag", data=data, typed=typed)


def _type_without_setting(path: str) -> Any:
    """Return the type of a flag that no setting declares: a variable of the chat template, or an option of a missing plugin."""
    return TEMPLATE_VALUE if path.startswith("data.template.") else _UNCHECKED


def recipe_layer(spec: AlgorithmSpec) -> Layer:
    """Return the defaults that a recipe sets for settings of the core."""
    data: dict[str, Any] = {}
    for path, (value, _) in spec.defaults.items():
        _merge(data, _nested(path, value), "", {}, None)
    return Layer(name="recipe", detail=f"recipe {spec.name}", data=data)


def _nested(path: str, value: Any) -> dict[str, Any]:
    head, _, rest = path.partition(".")
    return {head: _nested(rest, value) if rest else value}


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Merged settings, and the layer of each. ``owners`` maps the dotted paths of leaves to their layers."""

    data: dict[str, Any]
    owners: dict[str, Layer]
    layers: tuple[Layer, ...]

    def owner(self, path: str) -> Layer | None:
        """Return the layer that set ``path``, one of its ancestors, or a value below it; None for a default of the core."""
        head = path
        while head:
            if head in self.owners:
                return self.owners[head]
            head = head.rpartition(".")[0]
        return next((layer for known, layer in self.owners.items() if known.startswith(f"{path}.")), None)

    def origin(self, path: str) -> Origin:
        """Return the origin of a value, which is the core's default if no layer set it."""
        layer = self.owner(path)
        return layer.origin(path) if layer else Origin("core", "default")

    def where(self, path: str) -> str:
        """Return the beginning of a message about the setting, such as "run.toml, line 4: "; "" for a default of the core."""
        layer = self.owner(path)
        return f"{layer.place(path)}: " if layer else ""

    def rank(self, path: str) -> int:
        """Return the position of the setting's layer, -1 for the core. A higher rank was set later and takes precedence."""
        layer = self.owner(path)
        return -1 if layer is None else next((i for i, known in enumerate(self.layers) if known is layer), len(self.layers))

    def cite(self, path: str, value: Any) -> str:
        """Return a setting as the user knows it, such as ``-tMbs 8`` or ``train_minibatch_size = 8 (run.toml, line 4)``."""
        layer = self.owner(path)
        if layer is not None and layer.name == "flag":
            return layer.said(path, value)
        where = layer.place(path) if layer else "default"
        return Origin("core", where).cite(path, value)


def combine(layers: Sequence[Layer]) -> Draft:
    """Merge layers from left to right."""
    data: dict[str, Any] = {}
    owners: dict[str, Layer] = {}
    for layer in layers:
        _merge(data, layer.data, "", owners, layer)
    return Draft(data=data, owners=owners, layers=tuple(layers))


def _merge(into: dict[str, Any], data: Mapping[str, Any], path: str, owners: dict[str, Layer], layer: Layer | None) -> None:
    for key, value in data.items():
        here = f"{path}.{key}" if path else key
        old = into.get(key)
        if here == "rewards" and layer is not None and _is_bare_name(value, layer) and _name_again(into, value[0]["name"], owners, layer):
            continue
        if isinstance(value, Mapping) and here != "eval.eval_dataset":
            if not isinstance(old, dict):
                into[key] = old = {}
            if layer is not None and not value:
                owners[here] = layer
            _merge(old, value, here, owners, layer)
            continue
        into[key] = list(value) if isinstance(value, tuple) else value
        if layer is not None:
            _disown(owners, here)
            owners[here] = layer


def _is_bare_name(value: Any, layer: Layer) -> bool:
    """Return whether the value is only a name, as in ``-rt boxed``, or ``reward="boxed"`` in Python."""
    one = value[0] if isinstance(value, list) and len(value) == 1 else None
    return layer.name in ("flag", "python") and isinstance(one, Mapping) and one.keys() == {"name"}


def _name_again(into: dict[str, Any], name: Any, owners: dict[str, Layer], layer: Layer) -> bool:
    """Keep only the reward that a later layer names again, with all settings that earlier layers gave it.

    Returns False if earlier layers configured no such reward."""
    entries = into.get("rewards")
    if not isinstance(entries, list | tuple) or not isinstance(name, str):
        return False
    same = (i for i, entry in enumerate(entries) if isinstance(entry, Mapping) and str(entry.get("name")).lower() == name.lower())
    index = next(same, None)
    if index is None:
        return False
    whole = replace(owners["rewards"], moved={"rewards.0": f"rewards.{index}"}) if "rewards" in owners else layer
    kept = {f"rewards.0.{key}": owners.get(f"rewards.{index}.{key}", whole) for key in entries[index]}
    _disown(owners, "rewards")
    into["rewards"] = [{**entries[index], "name": name}]
    owners.update({**kept, "rewards": layer, "rewards.0.name": layer})
    return True


def _disown(owners: dict[str, Layer], path: str) -> None:
    """Remove the owners of all parts of a value that was replaced."""
    for known in [known for known in owners if known.startswith(f"{path}.")]:
        del owners[known]


def get_path(data: Any, path: str) -> Any:
    """Return the value at a dotted path of nested mappings, lists and models, or None if there is none."""
    for part in path.split("."):
        if isinstance(data, Mapping):
            data = data.get(part)
        elif isinstance(data, list | tuple):
            data = data[int(part)] if part.isdigit() and int(part) < len(data) else None
        else:
            data = getattr(data, part, None)
    return data


def replaced(value: Any, path: str, new: Any) -> Any:
    """Return a copy of nested mappings, tuples and models with ``new`` at a dotted path."""
    head, _, rest = path.partition(".")
    if not head:
        return new
    if isinstance(value, tuple):
        return tuple(replaced(item, rest, new) if place == int(head) else item for place, item in enumerate(value))
    if isinstance(value, Mapping):
        return {**value, head: replaced(value.get(head, {}), rest, new)}
    return value.model_copy(update={head: replaced(getattr(value, head), rest, new)})


def as_typed(value: Any) -> str:
    """Return a value as it is typed after a flag."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return " ".join(as_typed(item) for item in value) or "none"
    if isinstance(value, BaseModel):
        return as_typed(value.model_dump(mode="json", exclude_defaults=True))
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else str(value)
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return shlex.quote(text) if isinstance(value, str) and (not text or any(c.isspace() for c in text)) else text
