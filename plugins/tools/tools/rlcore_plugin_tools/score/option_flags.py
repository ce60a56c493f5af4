"""``--option key=value`` words: validated by the chosen rewards' own models; errors quote the typed words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from rlcore.api import UsageError
from rlcore.api.commands import Part, Registry, preview_settings
from rlcore.api.settings import (
    Draft,
    TypedFlag,
    closest,
    combine,
    core_settings,
    file_layer,
    flag_layer,
    from_text,
    model_settings,
    validation_error,
)

__all__ = ["option_flags"]


def option_flags(words: Sequence[str], files: Sequence[Path], flags: Mapping[str, Any], registry: Registry) -> dict[str, TypedFlag]:
    """Return ``words`` as flags of a plan, by setting; ``a.b=1`` and ``a.c=2`` together make the table ``a``. ``flags`` name the rewards.

    :raises UsageError: a word is not an option, its value is refused, or a required option is missing.
    """
    rewards = [part for part in preview_settings(files, flags, registry, {}) if part.path.startswith("rewards.")]
    options = _options(words, rewards)
    typed = {_key(word): word for word in words}
    below = combine([*map(file_layer, files), flag_layer({key: flags[key] for key in flags if key == "rewards"}, core_settings())])
    for part in rewards:
        if part.model is not None:
            _check(part, part.model, options, typed, below)
    return options


def _of_file(below: Draft, part: Part) -> dict[str, Any]:
    entry = below.data["rewards"][int(part.path.split(".")[1])]
    table = entry.get("options") if isinstance(entry, Mapping) else None
    return dict(table) if isinstance(table, Mapping) else {}


def _check(part: Part, model: type[BaseModel], options: Mapping[str, TypedFlag], typed: Mapping[str, str], below: Draft) -> None:
    """Check the typed options. Errors in a file are left to the plan, which knows its lines."""
    given = _of_file(below, part)
    layer = below.owner(part.path)
    named = f"{layer.place(part.path)}: reward" if layer is not None and layer.name == "file" else "--reward"
    settings = model_settings(model, "rewards.options", part.owner)
    here = {path: flag for path, flag in options.items() if path in settings}
    given |= {path.rpartition(".")[2]: from_text(flag.words, settings[path].type) for path, flag in here.items()}
    try:
        model.model_validate({key: value for key, value in given.items() if key in model.model_fields})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        names = [str(place) for place in first["loc"]]
        if first["type"] == "missing":
            key = ".".join(names)
            raise UsageError(f"{named} {part.name}: option {key} is required; type --option {key}=VALUE") from error
        mine = [word for key, word in typed.items() if f"rewards.options.{key.split('.')[0]}" in here and _about(key, names)]
        if mine:
            said = validation_error(error, Draft(data=given, owners={}, layers=()), model, owner=part.label)
            raise UsageError(f"{' '.join(f'--option {word}' for word in mine)}: {_plain(said, part)}") from error


def _plain(said: Exception, part: Part) -> str:
    return str(said).removeprefix(f"[] ({part.label}): ")


def _about(key: str, names: Sequence[str]) -> bool:
    """Return whether an error is at this option, inside it, or above it (a rule of the whole model has no place)."""
    return all(mine == theirs for mine, theirs in zip(key.split("."), names, strict=False))


def _key(word: str) -> str:
    return word.partition("=")[0].strip()


def _options(words: Sequence[str], rewards: Sequence[Part]) -> dict[str, TypedFlag]:
    known = sorted({key for part in rewards if part.model is not None for key in part.model.model_fields})
    plain: dict[str, TypedFlag] = {}
    nested: dict[str, dict[str, Any]] = {}
    for word in words:
        equals, value = word.partition("=")[1:]
        key, *inner = _key(word).split(".")
        if not equals or not key:
            raise UsageError(f"--option {word}: write --option key=value, for example --option {known[0] if known else 'scale'}=1")
        if not rewards:
            return {}  # it is not installed; the plan says what to install
        if key not in known:
            whose = " and ".join(part.name for part in rewards)
            listed = f"its options are: {', '.join(known)}" if known else "it has none"
            raise UsageError(f"--option {word}: {whose} has no option {key}{closest(key, known)}; {listed}")
        if inner:
            _put(nested.setdefault(key, {}), inner, value, word)
        else:
            plain[f"rewards.options.{key}"] = TypedFlag(f"--option {key}", (value,))
    if both := [key for key in nested if f"rewards.options.{key}" in plain]:
        raise UsageError(f"--option {both[0]}: it is given as a whole and by its parts; use only one form")
    tables = {f"rewards.options.{key}": TypedFlag(f"--option {key}", (json.dumps(table),)) for key, table in nested.items()}
    return plain | tables


def _put(table: dict[str, Any], keys: Sequence[str], value: str, word: str) -> None:
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise UsageError(f"--option {word}: {key} is given as a value and as a table; use only one form")
    if isinstance(table.get(keys[-1]), Mapping):
        raise UsageError(f"--option {word}: {keys[-1]} is given as a value and as a table; use only one form")
    table[keys[-1]] = _read(value)


def _read(value: str) -> Any:
    """Return a value inside a table, which has no flag and so no type yet: JSON if it parses as JSON, else text. The plugin's model checks
    it."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
