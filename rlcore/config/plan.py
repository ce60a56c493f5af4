"""Turn files, flags and plugins into a plan: a run of ``train``, resolved and checked, with the origin of every value.

Works in two passes. The names in files and flags choose plugins; then the plugins' options models and defaults complete the typed
configuration. Opens no network connection, loads no model and writes nothing. The floors above can read data files, and they check them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlcore.config.control_rules import check_controllers
from rlcore.config.data_source import check_endless, endless_notes, is_file, source_of
from rlcore.config.layers import Draft, Layer, Origin, combine, file_layer, flag_layer, get_path, python_layer, replaced
from rlcore.config.model_check import check_checkpoint, check_tokenizer, code_of, is_hub_name, longest_context
from rlcore.config.options import Options, check_sandboxes, gather_options, in_place, plugin_settings, spread_reward_flags
from rlcore.config.plan_record import Plan, named_format
from rlcore.config.plugin_selection import (
    ENVIRONMENT,
    LISTS,
    OWN_TABLES,
    SAMPLER,
    UPDATE_PARTS,
    Missing,
    PluginSelection,
    choose,
    choose_recipe,
)
from rlcore.config.recipe_check import check_recipe
from rlcore.config.reference_check import check_reference, reference_notes
from rlcore.config.remarks import remarks
from rlcore.config.reproducibility import reproducibility
from rlcore.config.resolve import STALENESS, resolve, resolve_declared
from rlcore.config.rules import RULES_OF_THE_RUN, RuleContext, check_required, check_rules
from rlcore.config.run_config import DataSource, RewardBudget, RewardPolicy, RunConfig
from rlcore.config.setting_table import core_settings
from rlcore.config.source_plans import Stack, has_sources, plan_sources, recipe_layers
from rlcore.config.validation_errors import validation_error
from rlcore.contracts.errors import ConfigError, PluginError
from rlcore.contracts.hookspecs import OBSERVING_HOOKS
from rlcore.contracts.specs import LABELS, InferenceBackendSpec, PluginKind
from rlcore.registry.error_context import closest
from rlcore.registry.known_plugins import NotInstalledError
from rlcore.registry.plugin_registry import Registry

__all__ = ["Plan", "plan_run", "preview_settings"]


def plan_run(
    files: Sequence[Path],
    flags: Mapping[str, Any],
    registry: Registry,
    *,
    overrides: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    require: bool = True,
    reads: Callable[[str], bool] = lambda path: True,
) -> Plan:
    """Resolve and check a run. Raises ConfigError and PluginError, one sentence each.

    :param flags: dotted paths -> ``TypedFlag`` words or plain values.
    :param overrides: settings from Python, below flags.
    :param require: whether model, data and reward must be given; False for ``show config``.
    :param reads: whether a setting (``run.seed``) of the files is read, for a command that does only a part of a run.
    """
    python = [overrides] if isinstance(overrides, Mapping) else list(overrides)
    below = _file_layers(files, reads) + [python_layer(values) for values in python if values]
    stack, planned = Stack(below=below, flags=flags), partial(_planned, registry, require)
    return plan_sources(stack, registry, planned) if has_sources(below) else planned(stack)


def _planned(registry: Registry, require: bool, stack: Stack) -> Plan:
    """Return the plan of a run without ``[[sources]]``, or of one source."""
    names, names_draft = _named(stack)
    recipe, missing_recipe = choose_recipe(names, registry, names_draft)
    if recipe is not None:
        check_recipe(registry, names.algorithm.name)
    of_run = choose_recipe(*_named_of_run(stack, registry))[0] if stack.above else None
    stack = replace(stack, below=[*recipe_layers(recipe, of_run), *stack.below])
    config, draft = _named(stack)
    chosen = choose(config, recipe, registry, draft)
    finish = partial(_finished, stack, registry, missing_recipe, require)
    if not chosen.decided.autos.get(STALENESS, (0, ""))[0]:
        return finish(chosen)
    try:
        plan = finish(chosen)
        registry.check_portable()
    except (ConfigError, PluginError) as validation_error:  # rlcore must not refuse a run because of a value that it chose itself
        return finish(choose(config, recipe, registry, draft, exact=f"1 is refused: {validation_error}"))
    return plan


def _named_of_run(stack: Stack, registry: Registry) -> tuple[RunConfig, Registry, Draft]:
    """Return the names that the settings of the whole run choose, without those of a source."""
    config, draft = _named(replace(stack, above=()))
    return config, registry, draft


def _finished(
    stack: Stack,
    registry: Registry,
    missing_recipe: Sequence[Missing],
    require: bool,
    chosen: PluginSelection,
) -> Plan:
    """Return the checked plan of the chosen plugins."""
    config, draft = _with_options(stack, chosen)
    options = gather_options(config, chosen, draft)
    config, resolved = resolve(config, chosen.decided.autos)
    config, declared = resolve_declared(_filled(config, options, chosen), chosen.spec)
    autos = {item.path: Layer(name="auto", detail=f"auto: {item.why}", data={}) for item in (*resolved, *declared)}
    facts = RuleContext(config=config, chosen=chosen, draft=replace(draft, owners={**draft.owners, **autos}))
    of_source = bool(stack.above)
    if require:
        check_required(facts, of_source=of_source)
    check_rules(facts, left_out=RULES_OF_THE_RUN if of_source else ())
    check_endless(config, registry, facts.cite, trains=require)
    check_controllers(facts, of_source=of_source)
    _check_observers(config, registry, draft)
    if problems := registry.check_run(config):
        raise ConfigError("; ".join(problems))
    _check_targets(config, chosen, registry)
    model_notes, model_missing = _check_model(config, chosen)
    check_reference(config, facts.cite, in_folder=not getattr(chosen.spec("inference.name"), "tokenizer", ""))
    missing = [
        *missing_recipe,
        *chosen.missing,
        *check_sandboxes(chosen, options, registry, draft),
        *model_missing,
        *_data_missing(config, registry, draft.where),
    ]
    derived = [str(item) for item in (*resolved, *declared)]
    repeats = reproducibility(config, chosen.spec)
    notes = [*derived, str(repeats), *options.notes, *remarks(facts, registry), *reference_notes(config, facts.cite), *model_notes]
    notes += [*registry.notes, *endless_notes(config, registry), *registry.check_run(config, "rlcore_note_run")]
    instances = options.instances
    return Plan(
        config=config,
        origins=_origins(config, facts.draft),
        notes=tuple(dict.fromkeys(notes)),
        missing=tuple(dict.fromkeys(missing)),
        registry=registry,
        derived=tuple(derived),
        reproducible=repeats,
        runtime_options=instances.get("run.runtime"),
        transfer_options=instances.get("weights.transport"),
        conversation_options=instances.get("sampling.conversation"),
        environment_options=instances.get(ENVIRONMENT),
        sampler_options=instances.get(SAMPLER),
        tracker_options=tuple(instances.get(f"log.trackers.{index}") for index in range(len(config.log.trackers))),
        controller_options=tuple(instances.get(f"run.controllers.{index}") for index in range(len(config.run.controllers))),
        filter_options=tuple(instances.get(f"algorithm.filters.{index}") for index in range(len(config.algorithm.filters))),
        inference_options=instances.get("inference.name"),
        training_options=instances.get("training.name"),
        loss_options=instances.get("algorithm.loss"),
        estimator_options=instances.get("algorithm.estimator"),
        update_options={path.partition(".")[2]: instances.get(path) for path in UPDATE_PARTS},
        reward_options=tuple(instances.get(f"rewards.{index}.name") for index in range(len(config.rewards))),
    )


def _check_observers(config: RunConfig, registry: Registry, draft: Draft) -> None:
    """Raise ConfigError for options of an observer that is not installed. Its plugin checks what they hold (``rlcore_check_run``)."""
    known = [owner for owner, manager in registry.hooks() if any(getattr(manager.hook, hook).get_hookimpls() for hook in OBSERVING_HOOKS)]
    for name in config.log.observers:
        if name not in known:
            has = f"the installed observers are {', '.join(known)}" if known else "no observer is installed"
            where = draft.where(f"log.observers.{name}")
            raise ConfigError(f"{where}[log.observers.{name}]: no observer has this distribution{closest(name, known)}; {has}")


def _file_layers(files: Sequence[Path], reads: Callable[[str], bool]) -> list[Layer]:
    """Return the settings of the files that are read. Unknown sections stay, so that validation refuses them."""

    def kept(section: str, table: Any) -> Any:
        if isinstance(table, Mapping) and section in RunConfig.model_fields:
            return {key: value for key, value in table.items() if reads(f"{section}.{key}")}
        if section == "sources" and isinstance(table, list):
            return [{name: kept(name, value) for name, value in one.items()} if isinstance(one, Mapping) else one for one in table]
        return table

    layers = map(file_layer, map(Path, files))
    return [replace(layer, data={section: kept(section, table) for section, table in layer.data.items()}) for layer in layers]


def _named(stack: Stack) -> tuple[RunConfig, Draft]:
    """Return the configuration that names the plugins. Flags for options of plugins are left out."""
    core = core_settings()
    known = {path: value for path, value in stack.flags.items() if path in core or "options." not in path}
    draft = combine([*stack.below, flag_layer(known, core), *stack.above])
    return _checked(draft), draft


def _checked(draft: Draft) -> RunConfig:
    try:
        return RunConfig.model_validate(draft.data)
    except ValidationError as error:
        raise validation_error(error, draft, RunConfig) from error


def _with_options(stack: Stack, chosen: PluginSelection) -> tuple[RunConfig, Draft]:
    flagged = flag_layer(stack.flags, {**core_settings(), **plugin_settings(chosen)})
    below, above = ([in_place(layer, chosen) for layer in layers] for layers in (stack.below, stack.above))
    draft = combine([*below, flagged, *above])
    spread_reward_flags(draft, stack.flags, chosen, flagged)
    return _checked(draft), draft


def _filled(config: RunConfig, options: Options, chosen: PluginSelection) -> RunConfig:
    """Return the configuration with every option of the chosen plugins and the name of every data source filled in."""
    listed: set[str] = set()
    for setting, (_, tables) in LISTS.items():
        own = {path for path in options.tables if path.startswith(f"{tables}.")}
        if len(own) == len(get_path(config, setting)):  # otherwise one is not installed, and a table may belong to any of them
            config = replaced(config, tables, {})
        listed |= own
    for path, table in options.tables.items():
        if path.startswith("data.dataset."):
            index, sources = int(path.split(".")[2]), config.data.sources
            named = {"source": chosen.parts[f"data.dataset.{index}.source"].name, "options": table}
            source = sources[index].model_copy(update=named)
            config = replaced(config, "data.dataset", (*sources[:index], source, *sources[index + 1 :]))
        elif table or path not in listed:
            config = replaced(config, path, table)
    return config


def _check_targets(config: RunConfig, chosen: PluginSelection, registry: Registry) -> None:
    """Raise PluginError, one sentence for each chosen plugin whose target does not exist. Imports nothing."""
    held_out = [(PluginKind.DATA, name) for name in _held_out(config, registry) if registry.has(PluginKind.DATA, name)]
    formats = [(PluginKind.FORMAT, name) for name in named_format(config) if registry.has(PluginKind.FORMAT, name)]
    names = dict.fromkeys([*((part.kind, part.name) for part in chosen), *held_out, *formats])
    if lost := [said for kind, name in names if (said := registry.missing_target(kind, name))]:
        raise PluginError("; ".join(lost))


def _check_model(config: RunConfig, chosen: PluginSelection) -> tuple[list[str], list[Missing]]:
    """Return notes and missing items about the model. Raises ConfigError if a folder exists and cannot be loaded."""
    spec = chosen.spec("inference.name")
    name, tokenizer = config.model.model, config.model.tokenizer_path
    if not name or (isinstance(spec, InferenceBackendSpec) and spec.tokenizer):
        return [], []
    notes = [
        f"{path} is not a folder here, so it is loaded from the Hugging Face Hub"
        for path in (name, tokenizer)
        if path and is_hub_name(path)
    ]
    if tokenizer and not is_hub_name(tokenizer) and spec is not None:
        check_tokenizer(Path(tokenizer))
    if is_hub_name(name):
        return notes, []
    if not Path(name).exists():
        return notes, [
            Missing(f"model {name} is not found here", "type -m and the folder of a checkpoint, or a hub name org/name", "model.model")
        ]
    if spec is None:  # the backend is not installed, so the formats that it loads are not known
        return notes, []
    limit = longest_context(check_checkpoint(Path(name)))
    if not tokenizer:
        check_tokenizer(Path(name))
    if limit is not None and config.max_context_tokens > limit:
        what = "max_prompt_tokens + max_new_tokens" if config.sampling.max_context_tokens is None else "max_context_tokens"
        notes.append(f"{what} = {config.max_context_tokens} is more than the {limit} positions of model {name}")
    own = [] if config.model.trust_remote_code else [file for path in {name, tokenizer or name} for file in code_of(Path(path))]
    notes += [f"{file} refers to its own code (auto_map), which is not run without --trust-remote-code" for file in sorted(own)]
    return notes, []


def _held_out(config: RunConfig, registry: Registry) -> list[str]:
    """Return the data sources of the evaluation tasks, which only their paths choose."""
    return list(dict.fromkeys(source_of(DataSource(path=path), registry) for path in config.eval.eval_dataset.values()))


def _data_missing(config: RunConfig, registry: Registry, where: Callable[[str], str]) -> list[Missing]:
    missing = []
    wanted = [(PluginKind.DATA, name) for name in _held_out(config, registry)]
    for kind, name in wanted + [(PluginKind.FORMAT, name) for name in named_format(config)]:
        try:
            registry.spec(kind, name)
        except NotInstalledError as error:
            missing.append(
                Missing(f"{LABELS[kind]} {name} is not installed", error.pip, "data.format" if kind is PluginKind.FORMAT else "")
            )
        except PluginError as error:
            raise PluginError(f"{where('data.format') if kind is PluginKind.FORMAT else ''}{error}") from error
    sets = [(source, "type -d and the path of an existing file") for source in config.data.sources]
    for task, path in config.eval.eval_dataset.items():
        sets.append((DataSource(path=path), f"name an existing file, or a data source, for the held-out task {task} in eval_dataset (-ed)"))
    absent: dict[str, str] = {}
    for one, advice in sets:
        if is_file(one, registry) and not Path(one.path).exists():
            absent.setdefault(one.path, advice)
    missing += [Missing(f"data set {path} is not found here", advice) for path, advice in absent.items()]
    beside = (("chat template", "--chat-template", config.data.chat_template), ("file of tools", "--tools", config.data.tools))
    return missing + [
        Missing(f"the {what} {path} is not found here", f"type {flag} and the path of an existing file")
        for what, flag, path in beside
        if path is not None and not Path(path).exists()
    ]


def _origins(config: RunConfig, draft: Draft) -> dict[str, Origin]:
    paths = [path for path in core_settings() if not path.startswith("rewards.")]
    tables = [f"{section}.options" for section in ("run", "inference", "training", "algorithm")]
    tables += [f"{path}_options" for path in ("algorithm.estimator", "algorithm.loss", *OWN_TABLES)]
    for table in (*tables, f"{SAMPLER}_options", "weights.options", "sampling.options", "sampling.extra"):
        paths += [f"{table}.{key}" for key in get_path(config, table)]
    for _, place in LISTS.values():
        paths += [f"{place}.{name}.{key}" for name, table in get_path(config, place).items() for key in table]
    for index, entry in enumerate(config.rewards):
        paths += [f"rewards.{index}.{key}" for key in ("name", "weight", "deadline")]
        paths += [f"rewards.{index}.policy.{key}" for key in RewardPolicy.model_fields]
        paths += [f"rewards.{index}.budget.{key}" for key in RewardBudget.model_fields]
        paths += [f"rewards.{index}.options.{key}" for key in entry.options]
    return {path: _exact(path, draft) for path in paths}


def _exact(path: str, draft: Draft) -> Origin:
    """Return the origin of one leaf. It is a default if only its table, or another key of its list item, was set."""
    head = path
    while head not in draft.owners and "." in head:
        head = head.rpartition(".")[0]
    table, _, key = path.rpartition(".")
    beside = get_path(draft.data, table) if table else draft.data
    if head in draft.owners and (head == path or (isinstance(beside, Mapping) and key in beside)):
        return draft.owners[head].origin(path)
    return Origin("core", "default of the plugin" if "options." in path else "default")


def preview_settings(
    files: Sequence[Path],
    flags: Mapping[str, Any],
    registry: Registry,
    names: Mapping[str, Any],
    reads: Callable[[str], bool] = lambda path: True,
) -> PluginSelection:
    """Return the plugins that files and flags choose, above ``names``. Used for ``--help`` and for plugin options as flags.

    A flag with a wrong value chooses nothing; ``plan_run`` reports the error. ``reads`` is the same as for ``plan_run``."""
    right = {path: given for path, given in flags.items() if _right(path, given)}
    config, draft = _named(Stack(below=[python_layer(names), *_file_layers(files, reads)], flags=right))
    recipe, _ = choose_recipe(config, registry, draft)
    return choose(config, recipe, registry, draft)


def _right(path: str, given: Any) -> bool:
    try:
        _named(Stack(below=(), flags={path: given}))
    except ConfigError:
        return False
    return True
