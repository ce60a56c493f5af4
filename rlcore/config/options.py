"""Options of the chosen plugins: gathered from the tables beside their names, validated by each plugin's own model.

Options belong to the plugin chosen beside them: where a later layer chooses another plugin, options of earlier layers that it does not
have are dropped with a note; options that it does not have in the same or a later layer are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from rlcore.config.chosen import Chosen, Part
from rlcore.config.layers import Draft, Layer, Typed, get_path, replaced
from rlcore.config.model import RunConfig
from rlcore.config.sentences import refusal, unknown_option
from rlcore.config.settings import Setting, alternatives, bare, core_settings, model_settings, whole_type
from rlcore.config.values import from_text
from rlcore.contracts.errors import ConfigError, PluginError
from rlcore.contracts.specs import PluginKind
from rlcore.host.blame import closest

__all__ = ["Options", "gather_options", "spread_reward_flags"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Validated options by the path of the setting that names the plugin (None where it has no model), the configuration's tables
    filled up with them (by options path), and notes."""

    instances: Mapping[str, BaseModel | None]
    tables: Mapping[str, dict[str, Any]]
    notes: tuple[str, ...]


def gather_options(config: RunConfig, chosen: Chosen, draft: Draft) -> Options:
    """Validate the options of every chosen plugin; ConfigError with the path that the user typed."""
    by_table: dict[str, list[Part]] = {}
    for part in chosen:
        by_table.setdefault(part.options_path, []).append(part)
    instances: dict[str, BaseModel | None] = {}
    tables: dict[str, dict[str, Any]] = {}
    _check_shared(by_table, draft)
    notes = _ownerless(config, by_table, chosen, draft)
    for path, parts in by_table.items():
        given = dict(get_path(config, path) or {})
        open_parts = path == "algorithm.options" and len(parts) < 2
        given, dropped = _known(given, path, parts, draft, keep=open_parts)
        notes += dropped
        tables[path] = dict(given) if open_parts else {}
        for part in parts:
            instance = _validated(given, part, draft)
            instances[part.path] = instance
            if instance is not None:
                tables[path].update(instance.model_dump(mode="json"))
    return Options(instances=instances, tables=tables, notes=tuple(notes))


def _check_shared(by_table: Mapping[str, Sequence[Part]], draft: Draft) -> None:
    """ConfigError if two trackers have one table: it could not tell their options apart, nor the run their names."""
    for path, parts in by_table.items():
        if path.startswith("log.options.") and len(parts) > 1:
            names = " and ".join(part.name for part in parts)
            both = f"the trackers {names} would both have their options in [{path}]"
            raise ConfigError(f"{draft.where('log.trackers')}{both}; keep one, or give one class another name")


def _ownerless(config: RunConfig, by_table: Mapping[str, Sequence[Part]], chosen: Chosen, draft: Draft) -> list[str]:
    """Notes on tables of trackers that a later layer replaced; ConfigError for one that was never chosen."""
    if any(f"log.trackers.{index}" not in chosen.parts for index in range(len(config.log.trackers))):
        return []  # one is not installed, and its table may be any of them
    notes = []
    for name in config.log.options:
        path = f"log.options.{name}"
        if path in by_table:
            continue
        names = [table.rpartition(".")[2] for table in by_table if table.startswith("log.options.")]
        layer = draft.owner(path)
        where = layer.place(path) if layer else path
        for part in (part for part in chosen if part.kind is PluginKind.TRACKER):
            if name.lower() in (part.name.lower(), part.spec.name, *part.spec.aliases):
                raise ConfigError(f"{where}: [{path}]: the options of the tracker {part.name} stand in [{part.options_path}]; write that")
        if draft.rank(path) < draft.rank("log.trackers") and (layer is None or layer.name != "flag"):
            notes.append(f"options of [{path}] that do not apply, for the run has no such tracker: {where}")
            continue
        has = f"its trackers are: {', '.join(names)}" if names else "it has no tracker"
        near = closest(name, names)
        what = "write one of these" if near else f"type --trackers {name}"
        raise ConfigError(f"{where}: [{path}] is for a tracker that the run has not{near}; {has}; {what}")
    return notes


def _fields(part: Part) -> list[str]:
    return list(part.model.model_fields) if part.model else []


def _known(given: dict[str, Any], path: str, parts: Sequence[Part], draft: Draft, *, keep: bool) -> tuple[dict[str, Any], list[str]]:
    """What the parts have; notes on what was dropped. ``keep``: a part is not installed, so what it has is not known."""
    fields = [name for part in parts for name in _fields(part)]
    kept: dict[str, Any] = {}
    names = [f"{path.rpartition('.')[0]}.name", *(part.path for part in parts)]
    names_rank = max(draft.rank(name) for name in names)
    who = " or ".join(part.label for part in parts)
    replaced = any(layer is not None and layer.name != "recipe" for layer in (draft.owner(part.path) for part in parts))
    dropped: list[str] = []
    for key, value in given.items():
        here = f"{path}.{key}"
        origin = draft.origin(here)
        if key in fields or keep:
            kept[key] = value
        elif origin.layer == "recipe" and not replaced:
            raise PluginError(f"{origin} sets the option {key}, and {who}, its own parts, have no such option{closest(key, fields)}")
        elif origin.layer == "recipe" or (draft.rank(here) < names_rank and origin.layer != "flag"):
            dropped.append(f"{key} ({origin})")
        else:
            raise unknown_option(here, draft, fields, who)
    if not dropped:
        return kept, []
    return kept, [f"options of [{path}] that do not apply, for they are not options of {who}: {', '.join(dropped)}"]


def _validated(given: Mapping[str, Any], part: Part, draft: Draft) -> BaseModel | None:
    if part.model is None:
        return None
    mine = {key: value for key, value in given.items() if key in part.model.model_fields}
    try:
        for key, value in mine.items():
            kinds = [bare(shape) for shape in alternatives(whole_type(part.model.model_fields[key]))]
            number = next((kind for kind in kinds if kind in (int, float)), None)
            if isinstance(value, bool) and number and not {bool, Any} & set(kinds):  # a model that is not strict reads true as 1
                raise ValidationError.from_exception_data(part.name, [{"type": f"{number.__name__}_type", "loc": (key,), "input": value}])
        return part.model.model_validate(mine)
    except ValidationError as error:
        raise refusal(error, draft, part.model, prefix=part.options_path, owner=part.label) from error


def spread_reward_flags(draft: Draft, flags: Mapping[str, Any], chosen: Chosen, layer: Layer) -> None:
    """``--reward-deadline 9`` goes to every reward, ``--rewards.options.scale 5`` to the one chosen reward that has the option; in place,
    before the options are validated."""
    for path, given in flags.items():
        if not path.startswith("rewards."):
            continue
        key = path.partition(".")[2]
        setting = core_settings().get(path)
        entries = [str(index) for index in range(len(draft.data.get("rewards", ())))]
        if setting is None:
            part, setting = _taker(key, given, chosen)
            entries = [part.path.split(".")[1]]
        value = from_text(given.words, setting.type) if isinstance(given, Typed) else given
        for entry in entries:
            draft.data["rewards"] = replaced(tuple(draft.data["rewards"]), f"{entry}.{key}", value)
            draft.owners[f"rewards.{entry}.{key}"] = layer.at(f"rewards.{entry}.{key}", given)


def _taker(key: str, given: Any, chosen: Chosen) -> tuple[Part, Setting]:
    """The one reward that has the option ``options.KEY``, and the option."""
    path = f"rewards.{key}"
    found = [
        (part, model_settings(part.model, "rewards.options", part.owner))
        for part in chosen
        if part.model and part.kind is PluginKind.REWARD
    ]
    takers = [(part, settings[path]) for part, settings in found if path in settings]
    if len(takers) != 1:
        whose = " and ".join(part.name for part, _ in takers) or "none of the chosen rewards"
        flag = given.flag if isinstance(given, Typed) else f"--{path}"
        name = key.rpartition(".")[2]
        raise ConfigError(f"{flag}: {whose} has the option {name}; exactly one must, so write it in [[rewards]] of a file")
    return takers[0]
