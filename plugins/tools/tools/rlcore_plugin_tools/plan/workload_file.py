"""Reads a workload from a TOML file and flags, with the errors of a run's configuration: one sentence that cites the typed value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from rlcore.api import ConfigError
from rlcore.api.settings import (
    Draft,
    Layer,
    Setting,
    TypedFlag,
    as_typed,
    closest,
    combine,
    expected,
    file_layer,
    flag_layer,
    from_text,
    get_path,
    model_settings,
    validation_error,
)
from rlcore_plugin_tools.plan.workload_model import MOST_RESPONSES, Workload

__all__ = ["load_workload", "workload_settings"]

_OWNER = "workload"


@cache
def workload_settings() -> Mapping[str, Setting]:
    """Return every leaf of ``Workload`` by dotted path; its long flag is its key, after the short one of ``rlcore train``."""
    return {
        path: _with_short(setting, model.model_fields[setting.key])
        for name, model in _sections().items()
        for path, setting in model_settings(model, name, _OWNER).items()
    }


def _with_short(setting: Setting, field: FieldInfo) -> Setting:
    extra = field.json_schema_extra
    declared = extra.get("flags", []) if isinstance(extra, dict) else []
    short = tuple(str(flag) for flag in declared) if isinstance(declared, list) else ()
    return replace(setting, flags=(*short, *setting.flags), spellings=(*short, *setting.spellings))


@cache
def _sections() -> Mapping[str, type[BaseModel]]:
    fields = Workload.model_fields.items()
    return {
        name: field.annotation for name, field in fields if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def load_workload(file: Path | None, flags: Mapping[str, TypedFlag]) -> Workload:
    """Return the workload of a file (None: the defaults) with flags applied over it. Raises ConfigError."""
    layers = ([] if file is None else [file_layer(file)]) + [_flags(flags)]
    draft = combine(layers)
    data = {name: _without_none_words(value) if isinstance(value, Mapping) else value for name, value in draft.data.items()}
    try:
        workload = Workload.model_validate(data)
    except ValidationError as error:
        raise _refusal(error, draft) from None
    _check_sources(workload, draft)
    prompts, each = workload.group.train_batch_size, max(part.num_generations for part in workload.parts)
    if prompts * each > MOST_RESPONSES:
        raise ConfigError(
            f"{prompts} prompts of {each} responses are {prompts * each:,} responses per update; at most {MOST_RESPONSES:,} can be "
            "simulated: type a smaller -tbs or -g"
        )
    return workload


def _check_sources(workload: Workload, draft: Draft) -> None:
    """Raise ConfigError for a sampler without sources, and for a name that cannot be the key of figures."""
    names = [source.name for source in workload.sources]
    for key in ("sampler", "sampler_options"):
        if key in draft.data and not names:
            raise ConfigError(f"{draft.where(key)}{key} is of a workload with [[sources]]; add them, or leave it out")
    if twice := sorted(name for name in set(names) if names.count(name) > 1):
        raise ConfigError(f"{draft.where('sources')}name = {twice[0]!r} is the name of two [[sources]]; write another name")


def _flags(flags: Mapping[str, TypedFlag]) -> Layer:
    """Return the flags as a layer. ``flag_layer`` leaves ``rewards.`` to the reward terms of a run; here [rewards] is a table like the
    others."""
    layer, settings = flag_layer(flags, workload_settings()), workload_settings()
    rewards = {
        settings[path].key: from_text(given.words, settings[path].type) for path, given in flags.items() if path.startswith("rewards.")
    }
    return replace(layer, data={**layer.data, "rewards": rewards}) if rewards else layer


def _without_none_words(table: Mapping[str, Any]) -> dict[str, Any]:
    """Replace "none" by None, since TOML has no null."""
    return {key: None if value == "none" else value for key, value in table.items()}


def _refusal(error: ValidationError, draft: Draft) -> ConfigError:
    first = error.errors(include_url=False)[0]
    if first["loc"] == ("sources",):
        return ConfigError(f"{draft.where('sources')}sources must be a list of tables, each with a name, written [[sources]]")
    if first["loc"][0] in ("sources", "sampler", "sampler_options"):
        return validation_error(error, draft, Workload, owner=_OWNER)
    path = ".".join(str(part) for part in first["loc"][:2])
    layer = draft.owner(path)
    where = f"{layer.place(path)}: " if layer is not None else ""
    if first["type"] == "extra_forbidden":
        return ConfigError(f"{where}{path} is not a setting of a workload{_closest(path)}; rlcore plan --help lists every setting")
    if path in _sections():
        return ConfigError(f"{where}{path} must be a table, written [{path}]")
    setting = workload_settings()[path]
    value, rule = get_path(draft.data, path), expected(_type(path))
    if layer is not None and layer.name == "flag":
        return ConfigError(f"{layer.said(path, value)}: {path} must be {rule}; type {setting.flag} {_example(setting)}")
    return ConfigError(f"{where}{path} = {as_typed(value)} must be {rule}; write {setting.key} = {_example(setting)}")


def _type(path: str) -> Any:
    section, _, key = path.partition(".")
    field = _sections()[section].model_fields[key]
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def _example(setting: Setting) -> str:
    return "50000" if setting.default is None else f"{as_typed(setting.default)} (the default)"


def _closest(path: str) -> str:
    section, _, key = path.partition(".")
    if not key or section not in _sections():
        return closest(section, list(_sections()))
    return closest(key, [setting.key for setting in workload_settings().values()])
