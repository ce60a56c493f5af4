"""Describes one registered plugin as plain data: its options, the origin of each default, and TOML to paste.

It knows the table of the core's settings, and nothing about a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import tomli_w
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from rlcore.api import AlgorithmSpec, PluginKind
from rlcore.api.commands import Registry, Spec, check_recipe
from rlcore.api.sandbox import SHARED_OPTIONS
from rlcore.api.settings import core_settings
from rlcore_plugin_tools.show.type_name import type_name

__all__ = ["Option", "describe", "options_of", "toml_of"]

_PLACE: Mapping[PluginKind, tuple[str, str]] = {
    PluginKind.INFERENCE: ("inference", "name"),
    PluginKind.TRAINING: ("training", "name"),
    PluginKind.ESTIMATOR: ("algorithm", "estimator"),
    PluginKind.LOSS: ("algorithm", "loss"),
    PluginKind.AGGREGATION: ("algorithm", "loss_variation"),
    PluginKind.KL: ("algorithm", "kl_kind"),
    PluginKind.CORRECTION: ("algorithm", "mismatch_correction"),
    PluginKind.LR_SCHEDULE: ("training", "lr_schedule"),
    PluginKind.MODEL_HOOK: ("training", "model_hook"),
    PluginKind.OPTIMIZER: ("training", "optimizer"),
    PluginKind.ALGORITHM: ("algorithm", "name"),
    PluginKind.RUNTIME: ("run", "runtime"),
    PluginKind.TRANSFER: ("weights", "transport"),
    PluginKind.CONVERSATION: ("sampling", "conversation"),
    PluginKind.ENVIRONMENT: ("sampling", "environment"),
    PluginKind.FORMAT: ("data", "format"),
    PluginKind.SAMPLER: ("data", "sampler"),
    PluginKind.SANDBOX: ("rewards.options.sandbox", "backend"),
}
"""Section and key of the run configuration that choose a plugin of this kind."""

_LISTS: Mapping[PluginKind, tuple[str, str]] = {
    PluginKind.TRACKER: ("log", "trackers"),
    PluginKind.FILTER: ("algorithm", "filters"),
    PluginKind.CONTROLLER: ("run", "controllers"),
}
"""The same for kinds of which a run has a list."""

_OPTIONS: Mapping[PluginKind, str] = {
    PluginKind.REWARD: "rewards.options",
    PluginKind.TRACKER: "log.options.{name}",
    PluginKind.CONTROLLER: "run.controller_options.{name}",
    PluginKind.FILTER: "algorithm.filter_options.{name}",
    **{
        kind: f"{_PLACE[kind][0]}.{_PLACE[kind][1]}_options"
        for kind in (
            *(PluginKind.AGGREGATION, PluginKind.KL, PluginKind.CORRECTION, PluginKind.LR_SCHEDULE),
            *(PluginKind.MODEL_HOOK, PluginKind.OPTIMIZER, PluginKind.SAMPLER, PluginKind.ENVIRONMENT),
        )
    },
    PluginKind.SANDBOX: "rewards.options.sandbox.backend_options",
    PluginKind.COMMAND: "options",
    PluginKind.DATA: "data.dataset.options",
}
"""The table for the options of a kind that has no section."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One setting. ``default`` is plain data, and also None if ``required``; ``source`` names the origin of the default."""

    path: str
    type: str
    default: Any
    required: bool
    description: str
    source: str


def options_of(registry: Registry, kind: PluginKind, name: str) -> list[Option]:
    """Return the options of one plugin, by the key that the user types; for a recipe, its settings and its parts' options."""
    spec = registry.spec(kind, name)
    if isinstance(spec, AlgorithmSpec):
        check_recipe(registry, name)
        return _recipe_options(registry, spec)
    model = registry.options_model(kind, name)
    table = _OPTIONS[kind].format(name=spec.name) if kind in _OPTIONS else f"{_PLACE[kind][0]}.options"
    options = _model_options(model, table, f"{kind} {spec.name} ({registry.owner(kind, name)})")
    return [_asked_above(option) for option in options] if kind is PluginKind.SANDBOX else options


def _asked_above(option: Option) -> Option:
    """Move an option that a sandbox shares with ``SandboxOptions`` one table up, above ``backend_options``: users set it there."""
    table, _, key = option.path.rpartition(".")
    return replace(option, path=f"{table.rpartition('.')[0]}.{key}") if key in SHARED_OPTIONS else option


def _recipe_options(registry: Registry, recipe: AlgorithmSpec) -> list[Option]:
    source = f"recipe {recipe.name}"
    parts = {"algorithm.estimator": recipe.estimator, "algorithm.loss": recipe.loss}
    settings = {path: _recipe_option(path, name, source, None) for path, name in parts.items()}
    of_parts = [options_of(registry, PluginKind.ESTIMATOR, recipe.estimator), options_of(registry, PluginKind.LOSS, recipe.loss)]
    both = {option.path for option in of_parts[0]} & {option.path for option in of_parts[1]}
    for path, options in zip(parts, of_parts, strict=True):
        for option in options:
            place = f"{path}_options.{option.path.rpartition('.')[2]}" if option.path in both else option.path
            settings[place] = replace(option, path=place)
    for path, (value, reference) in recipe.defaults.items():
        from_whom = f"{source}: {reference}" if reference else source
        settings[path] = _recipe_option(path, value, from_whom, settings.get(path))
    return list(settings.values())


def _recipe_option(path: str, value: Any, source: str, known: Option | None) -> Option:
    """Return one setting of a recipe. ``known``: the option of the estimator or the loss that the recipe sets, None if it sets a setting of
    the core."""
    core = core_settings().get(path)
    return Option(
        path=path,
        type=known.type if known else type_name(core.type if core else type(value)),
        default=to_jsonable_python(value, fallback=str),
        required=False,
        description=known.description if known else core.help if core else "",
        source=source,
    )


def _model_options(model: type[BaseModel] | None, prefix: str, source: str) -> list[Option]:
    if model is None:
        return []
    return [
        Option(
            path=f"{prefix}.{field.alias or name}",
            type=type_name(field.annotation),
            default=None
            if field.is_required()
            else to_jsonable_python(field.get_default(call_default_factory=True, validated_data={}), fallback=str),
            required=field.is_required(),
            description=field.description or "",
            source="you" if field.is_required() else source,
        )
        for name, field in model.model_fields.items()
    ]


# --- TOML --------------------------------------------------------------------------------------------------------------


def toml_of(kind: PluginKind, name: str, options: list[Option]) -> str:
    """Return text to paste into run.toml that chooses ``name`` with its defaults spelled out."""
    if kind is PluginKind.REWARD:
        head, tables = ["[[rewards]]", _line("name", name), _line("weight", 1.0)], {"rewards.options": options}
    elif kind in _LISTS:
        section, key = _LISTS[kind]
        head, tables = [f"[{section}]", _line(key, [name])], _by_table(options)
    elif kind is PluginKind.DATA:
        head, tables = ["[[data.dataset]]", "# path =   # the data to read, required", _line("source", name)], _by_table(options)
    elif kind not in _PLACE:
        return ""
    else:
        section, key = _PLACE[kind]
        head, tables = [f"[{section}]", _line(key, name)], _by_table(options)
        head += [_setting(option) for option in tables.pop(section, [])]
    blocks = ["\n".join(head)]
    blocks += ["\n".join([f"[{table}]", *map(_setting, inside)]) for table, inside in tables.items() if inside]
    return "\n\n".join(blocks) + "\n"


def _by_table(options: list[Option]) -> dict[str, list[Option]]:
    tables: dict[str, list[Option]] = {}
    for option in options:
        tables.setdefault(option.path.rpartition(".")[0], []).append(option)
    return tables


def _setting(option: Option) -> str:
    key = option.path.rpartition(".")[2]
    if option.required:
        return f"# {key} =   # {option.type}, required"
    if option.default is None:  # TOML has no null: leaving the key out means it
        return f"# {key} =   # {option.type}, unset"
    return _line(key, option.default)


def _line(key: str, value: Any) -> str:
    return f"{key} = {_value(value)}"


def _value(value: Any) -> str:
    """Return a TOML value on one line, so that each setting of a section takes one line, even if it is a table."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_value(str(key))} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return tomli_w.dumps({"_": value}).partition("=")[2].strip()


# --- everything --------------------------------------------------------------------------------------------------------


def describe(registry: Registry, kind: PluginKind, name: str) -> dict[str, Any]:
    """Return everything that ``rlcore show KIND NAME --json`` prints."""
    spec = registry.spec(kind, name)
    options = options_of(registry, kind, name)
    common = {field.name for field in fields(Spec)} | {"defaults"}
    own = {field.name: getattr(spec, field.name) for field in fields(spec) if field.name not in common}
    if record := own.pop("capabilities", None):
        own |= {field.name: getattr(record, field.name) for field in fields(record)}
    own = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in own.items()}
    typed = name if ":" in name else spec.name
    return {
        "kind": str(kind),
        "name": typed,
        "aliases": list(spec.aliases),
        "summary": spec.summary,
        "source": spec.source,
        "owner": registry.owner(kind, name),
        "version": registry.version(kind, name),
        "target": spec.target,
        "properties": {name: to_jsonable_python(value, fallback=str) for name, value in own.items()},
        "options": [{field.name: getattr(option, field.name) for field in fields(option)} for option in options],
        "toml": toml_of(kind, typed, options),
    }
