"""Options of the chosen plugins, collected from the tables next to their names and validated by each plugin's own model.

Options belong to the plugin that is chosen next to them. If a later layer chooses another plugin, options of earlier layers that the new
plugin does not have are dropped with a note. Unknown options in the same or a later layer are refused. Loss and estimator share the table
``algorithm.options``. An option that both have is in ``algorithm.loss_options`` and ``algorithm.estimator_options``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from rlcore.config.layers import Draft, Layer, TypedFlag, get_path, replaced
from rlcore.config.plugin_selection import LISTS, Missing, Part, PluginSelection
from rlcore.config.run_config import RunConfig
from rlcore.config.setting_table import Setting, alternatives, core_settings, from_text, model_settings, whole_type, without_bounds
from rlcore.config.validation_errors import unknown_option, validation_error
from rlcore.contracts.errors import ConfigError, PluginError
from rlcore.contracts.specs import LABELS, PluginKind
from rlcore.registry.error_context import closest
from rlcore.registry.known_plugins import NotInstalledError
from rlcore.registry.plugin_registry import Registry
from rlcore.registry.sandboxes import sandbox_argument, sandboxes_in

__all__ = ["Options", "check_sandboxes", "gather_options", "in_place", "plugin_settings", "spread_reward_flags"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Validated options of the chosen plugins.

    ``instances`` is keyed by the path of the setting that names the plugin; the value is None if the plugin has no options model.
    ``tables`` holds the completed tables of the configuration, by options path."""

    instances: Mapping[str, BaseModel | None]
    tables: Mapping[str, dict[str, Any]]
    notes: tuple[str, ...]


def gather_options(config: RunConfig, chosen: PluginSelection, draft: Draft) -> Options:
    """Validate the options of every chosen plugin. Raises ConfigError with the path that the user typed."""
    by_table: dict[str, list[Part]] = {}
    for part in chosen:
        for path in (part.options_path, *([part.own_table] if part.own_table else [])):
            by_table.setdefault(path, []).append(part)
    instances: dict[str, BaseModel | None] = {}
    given: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    _check_shared(by_table, draft)
    notes = _ownerless(config, chosen, draft)
    for path, parts in by_table.items():
        open_parts = path == "algorithm.options" and len(parts) < 2
        kept, dropped = _known(dict(get_path(config, path) or {}), path, parts, chosen, draft, keep=open_parts)
        notes += dropped
        given.update({f"{path}.{key}": value for key, value in kept.items()})
        tables[path] = kept if open_parts else {}
    for part in chosen:
        places = {key: chosen.place(part, key) for key in part.fields}
        instance = _validated({key: given[place] for key, place in places.items() if place in given}, part, chosen, draft)
        instances[part.path] = instance
        for key, value in instance.model_dump(mode="json").items() if instance is not None else ():
            tables[chosen.place(part, key).rpartition(".")[0]][key] = value
    return Options(instances=instances, tables=tables, notes=tuple(notes))


def in_place(layer: Layer, chosen: PluginSelection) -> Layer:
    """Return the layer with every option of loss and estimator at the path that ``PluginSelection.place`` gives.

    Moves options in ``algorithm.loss_options`` (and its counterpart) that only one of the two plugins has. Also moves an option of a recipe
    that both plugins have, if only one of the two is the recipe's own."""
    data, moved = layer.data, dict(layer.moved)
    own = [part for part in chosen if part.own_table and part.path in chosen.decided.autos]
    for part in chosen:
        for key in part.fields if part.own_table else ():
            place, there = chosen.place(part, key), f"{part.own_table}.{key}"
            if place == there and layer.name == "recipe" and own == [part]:
                there = f"{part.options_path}.{key}"
            head = there.rpartition(".")[0]
            table = get_path(data, head)
            if place == there or not isinstance(table, Mapping) or key not in table:
                continue
            if key in (get_path(data, place.rpartition(".")[0]) or {}):
                raise ConfigError(f"{layer.place(there)}: {there} and {place} are the same option, {key} of {part.label}; keep one of them")
            data = replaced(replaced(data, place, table[key]), head, {name: value for name, value in table.items() if name != key})
            moved[place] = there
    return replace(layer, data=data, moved=moved)


def plugin_settings(chosen: PluginSelection) -> dict[str, Setting]:
    """Return the options of the chosen plugins as settings, by path; the path of a reward's option contains its index in the list.

    Options of data sources have no flag, because several data sets may have the same option."""
    table: dict[str, Setting] = {}
    for part in chosen:
        if part.model is None or part.path.startswith("data.dataset."):
            continue
        prefix, long = part.options_path, part.path.removeprefix("algorithm.") if part.path.startswith("algorithm.") else part.options_path
        if part.kind is PluginKind.FILTER:
            long = f"filters.{part.spec.name}"
        if part.kind is PluginKind.REWARD:
            prefix, long = "rewards.options", f"rewards.{part.spec.name}"
        for setting in model_settings(part.model, prefix, part.label, long=long).values():
            path = chosen.place(part, setting.key)
            table[path] = replace(setting, path=path)
    return table


def _check_shared(by_table: Mapping[str, Sequence[Part]], draft: Draft) -> None:
    """Raise ConfigError if two plugins of a list share a table, because their options could not be told apart."""
    for setting, (kind, table) in LISTS.items():
        for path, parts in by_table.items():
            if path.startswith(f"{table}.") and len(parts) > 1:
                names = " and ".join(part.name for part in parts)
                both = f"the {LABELS[kind]}s {names} would both have their options in [{path}]"
                raise ConfigError(f"{draft.where(setting)}{both}; keep one, or give one class another name")


def _ownerless(config: RunConfig, chosen: PluginSelection, draft: Draft) -> list[str]:
    """Return notes about tables of listed plugins that a later layer replaced. Raises ConfigError for a plugin that was never chosen."""
    return [note for setting in LISTS for note in _ownerless_in(setting, config, chosen, draft)]


def _ownerless_in(setting: str, config: RunConfig, chosen: PluginSelection, draft: Draft) -> list[str]:
    (kind, tables), parts = LISTS[setting], [part for path, part in chosen.parts.items() if path.startswith(f"{setting}.")]
    if len(parts) < len(get_path(config, setting)):
        return []  # one is not installed, and each table may belong to it
    notes, label, names = [], LABELS[kind], [part.spec.name for part in parts]
    for name in get_path(config, tables):
        path = f"{tables}.{name}"
        if name in names:
            continue
        layer = draft.owner(path)
        where = layer.place(path) if layer else path
        for part in parts:
            if name.lower() in (part.name.lower(), part.spec.name, *part.spec.aliases):
                raise ConfigError(
                    f"{where}: [{path}]: the options of the {label} {part.name} belong in [{part.options_path}]; use that table"
                )
        if draft.rank(path) < draft.rank(setting) and (layer is None or layer.name != "flag"):
            notes.append(f"options of [{path}] that do not apply, because the run has no such {label}: {where}")
            continue
        has = f"its {label}s are: {', '.join(names)}" if names else f"it has no {label}"
        near = closest(name, names)
        what = "write one of these" if near else f"type --{setting.rpartition('.')[2]} {name}"
        raise ConfigError(f"{where}: [{path}] is for a {label} that the run does not have{near}; {has}; {what}")
    return notes


def _known(
    given: dict[str, Any], path: str, parts: Sequence[Part], chosen: PluginSelection, draft: Draft, *, keep: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the options that the plugins have, and notes about dropped ones.

    :param keep: keep unknown options, because a plugin is not installed and its options are not known."""
    places = {chosen.place(part, name) for part in parts for name in part.fields}
    fields = [name for part in parts for name in part.fields]
    kept: dict[str, Any] = {}
    names = [f"{path.rpartition('.')[0]}.name", *(part.path for part in parts)]
    names_rank = max(draft.rank(name) for name in names)
    who = " or ".join(part.label for part in parts)
    replaced = any(layer is not None and layer.name != "recipe" for layer in (draft.owner(part.path) for part in parts))
    dropped: list[str] = []
    for key, value in given.items():
        here = f"{path}.{key}"
        origin = draft.origin(here)
        if here in places or keep:
            kept[key] = value
        elif key in fields and (origin.layer != "recipe" or not replaced):
            raise _ambiguous(here, parts, draft)
        elif origin.layer == "recipe" or (draft.rank(here) < names_rank and origin.layer != "flag"):
            dropped.append(f"{key} ({origin})")
        else:
            raise unknown_option(here, draft, fields, who)
    if not dropped:
        return kept, []
    return kept, [f"options of [{path}] that do not apply, because they are not options of {who}: {', '.join(dropped)}"]


def _ambiguous(path: str, parts: Sequence[Part], draft: Draft) -> ConfigError:
    """Return the error for an option in the shared table that both of its plugins have."""
    key = path.rpartition(".")[2]
    both = " and ".join(part.label for part in parts)
    places = " or ".join(f"[{part.own_table}]" for part in parts)
    flags = " or ".join(f"--{part.path.partition('.')[2]}.{key.replace('_', '-')}" for part in parts)
    return ConfigError(f"{draft.where(path)}{path} is an option of {both}; write {key} in {places}, or type {flags}")


def _validated(mine: Mapping[str, Any], part: Part, chosen: PluginSelection, draft: Draft) -> BaseModel | None:
    if part.model is None:
        return None
    try:
        for key, value in mine.items():
            kinds = [without_bounds(shape) for shape in alternatives(whole_type(part.model.model_fields[key]))]
            number = next((kind for kind in kinds if kind in (int, float)), None)
            if isinstance(value, bool) and number and not {bool, Any} & set(kinds):  # a model that is not strict reads true as 1
                raise ValidationError.from_exception_data(part.name, [{"type": f"{number.__name__}_type", "loc": (key,), "input": value}])
        return part.model.model_validate(mine)
    except ValidationError as error:
        loc = error.errors(include_url=False)[0]["loc"]
        prefix = chosen.place(part, str(loc[0])).rpartition(".")[0] if loc else part.options_path
        raise validation_error(error, draft, part.model, prefix=prefix, owner=part.label) from error


def spread_reward_flags(draft: Draft, flags: Mapping[str, Any], chosen: PluginSelection, layer: Layer) -> None:
    """Apply the reward flags to ``draft`` in place, before the options are validated.

    ``--reward-deadline 9`` applies to every reward, and ``--rewards.boxed.scale 5`` to that one. ``rewards.options.scale`` applies to the
    only chosen reward that has the option."""
    for path, given in flags.items():
        if not path.startswith("rewards."):
            continue
        key = path.partition(".")[2]
        setting = core_settings().get(path)
        entries = [str(index) for index in range(len(draft.data.get("rewards", ())))]
        if setting is None:
            setting = _taken(path, given, chosen)
            entry, _, key = setting.path.removeprefix("rewards.").partition(".")
            entries = [entry]
        value = from_text(given.words, setting.type) if isinstance(given, TypedFlag) else given
        for entry in entries:
            draft.data["rewards"] = replaced(tuple(draft.data["rewards"]), f"{entry}.{key}", value)
            draft.owners[f"rewards.{entry}.{key}"] = layer.at(f"rewards.{entry}.{key}", given)


def _taken(path: str, given: Any, chosen: PluginSelection) -> Setting:
    """Return the option of a reward at a path, or of the only reward that has the option ``rewards.options.KEY``."""
    settings = plugin_settings(chosen)
    name = path.rpartition(".")[2]
    tail = path.removeprefix("rewards")
    found = [path] if path in settings else [known for known in settings if known.startswith("rewards.") and known.endswith(tail)]
    if len(found) != 1:
        whose = (
            " and ".join(chosen.parts[f"{known.partition('.options.')[0]}.name"].name for known in found) or "none of the chosen rewards"
        )
        flag = given.flag if isinstance(given, TypedFlag) else f"--{path}"
        raise ConfigError(
            f"{flag}: the option {name} belongs to {whose}, but this flag needs exactly one; write it under [[rewards]] in a file"
        )
    return settings[found[0]]


def check_sandboxes(chosen: PluginSelection, options: Options, registry: Registry, draft: Draft) -> list[Missing]:
    """Check the sandboxes that the options of rewards and of the conversation name before anything starts, although only workers open them.
    Return those that are not installed.

    Raises ConfigError, with the line that sets it, if a sandbox refuses its options or does not provide the requested level. Raises
    PluginError if there is no sandbox of that name."""
    missing = []
    for part in chosen:
        if part.kind not in (PluginKind.REWARD, PluginKind.CONVERSATION):
            continue
        for inner, asked in sandboxes_in(options.instances.get(part.path)):
            path = f"{part.options_path}.{inner}"
            try:
                sandbox_argument(asked, registry)
                if lost := registry.missing_target(PluginKind.SANDBOX, asked.backend):
                    raise PluginError(lost)
            except NotInstalledError as error:
                missing.append(Missing(f"sandbox {asked.backend}, which {part.kind} {part.name} uses, is not installed", error.pip))
            except ValidationError as error:
                model = registry.options_model(PluginKind.SANDBOX, asked.backend)
                assert model is not None  # it raised the error
                owner = f"sandbox {asked.backend} of {registry.owner(PluginKind.SANDBOX, asked.backend)}"
                raise validation_error(error, draft, model, prefix=f"{path}.backend_options", owner=owner) from error
            except (ConfigError, PluginError) as error:
                raise type(error)(f"{draft.where(path)}{error}") from error
    return missing
