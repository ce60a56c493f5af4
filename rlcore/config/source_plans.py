"""Plan a run with ``[[sources]]``: each source as a run of its own, with the settings of the whole run below its table.

A source is planned by the function that plans a run, so every rule, default and message is the same. What the whole run must decide
(``max_staleness``, ``old_logprobs``) is decided for all sources, and their plans are then made again with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from rlcore.config.layers import Draft, Layer, Origin, combine, flag_layer, get_path, recipe_layer, replaced
from rlcore.config.plan_record import Plan, SourcePlan
from rlcore.config.plugin_selection import PluginSelection
from rlcore.config.resolve import OLD_LOGPROBS, STALENESS, Decided
from rlcore.config.rules import PLAIN_WORD, RULES_OF_A_SOURCE, RuleContext, check_rules, is_folder_name
from rlcore.config.run_config import RunConfig, SourceSection
from rlcore.config.section import AMONG_SOURCES, of_a_source
from rlcore.config.setting_table import core_settings
from rlcore.config.validation_errors import unknown_option, validation_error
from rlcore.contracts.errors import ConfigError, PluginError
from rlcore.contracts.specs import AlgorithmSpec, PluginKind, SamplerSpec
from rlcore.registry.plugin_registry import CORE, Registry

__all__ = ["Stack", "has_sources", "plan_sources", "recipe_layers"]

_IN_EACH_SOURCE = ("data.dataset", "eval.eval_dataset")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The settings of a run or of a source: the layers below the flags, the flags, and the layers above them, which only sources have."""

    below: Sequence[Layer]
    flags: Mapping[str, Any]
    above: Sequence[Layer] = ()


def has_sources(below: Sequence[Layer]) -> bool:
    """Return whether the settings have ``[[sources]]``."""
    return bool(combine(below).data.get("sources"))


def recipe_layers(recipe: AlgorithmSpec | None, of_run: AlgorithmSpec | None = None) -> list[Layer]:
    """Return the defaults of a recipe. For a source, those of its own recipe for what a source may set, and of the run's for the rest."""
    if of_run is None:
        return [recipe_layer(recipe)] if recipe else []
    return [_some(of_run, of_source=False), *([_some(recipe, of_source=True)] if recipe else [])]


def _some(recipe: AlgorithmSpec, *, of_source: bool) -> Layer:
    kept = {path: value for path, value in recipe.defaults.items() if of_a_source(path) == of_source}
    return recipe_layer(replace(recipe, defaults=kept))


def plan_sources(stack: Stack, registry: Registry, planned: Callable[[Stack], Plan]) -> Plan:
    """Return the plan of a run with ``[[sources]]``. Raises ConfigError and PluginError, one sentence each.

    :param planned: returns the plan of a stack, of which ``above`` makes it that of a source."""
    core = core_settings()
    of_run = {path: value for path, value in stack.flags.items() if path in core or _is_among(path)}
    draft = combine([*stack.below, flag_layer(of_run, core)])
    sections, owner = _sections(draft), draft.owners["sources"]
    below = [replace(layer, data=_inherited(layer.data)) for layer in stack.below]
    flags = {path: given for path, given in stack.flags.items() if not _is_among(path)}
    tables = [_layer(owner, number, draft.data["sources"][number]) for number in range(len(sections))]

    def of_each(*above: Layer) -> tuple[SourcePlan, ...]:
        stacks = [Stack(below=below, flags=flags, above=(*above, table)) for table in tables]
        plans = _each([section.name for section in sections], stacks, planned)
        return tuple(SourcePlan(name=one.name, weight=one.weight, plan=plan) for one, plan in zip(sections, plans, strict=True))

    found = of_each()
    if together := list(_together(found)):
        found = of_each(*together)
    _check_flags(flags, found)
    return _with_sampler(_joined(found, sections, draft), draft, registry)


def _is_among(path: str) -> bool:
    """Return whether a setting is of the sampler of the sources."""
    return path.startswith(AMONG_SOURCES)


def _inherited(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the run that each source has, too."""
    tables = {section: values for section, values in data.items() if section != "sources"}
    for path in AMONG_SOURCES:
        section, _, key = path.partition(".")
        if isinstance(table := tables.get(section), Mapping):
            tables[section] = {name: value for name, value in table.items() if name != key}
    return tables


def _with_sampler(plan: Plan, draft: Draft, registry: Registry) -> Plan:
    """Return the plan with the sampler of its sources: that of the run's own settings, by default ``weighted``."""
    named, options = (get_path(draft.data, path) for path in AMONG_SOURCES)
    name = "weighted" if named in (None, "auto") else named
    owner, model = f"sampler {name}", None
    try:
        model = registry.options_model(PluginKind.SAMPLER, name)
        owner = f"sampler {name} of {registry.owner(PluginKind.SAMPLER, name)}"
    except PluginError as error:
        raise PluginError(f"{draft.where('data.sampler')}{error}") from error
    spec = registry.spec(PluginKind.SAMPLER, name)
    if isinstance(spec, SamplerSpec) and spec.endless:
        raise ConfigError(
            f"{draft.cite('data.sampler', name)} draws the sources of this run, and the sampler {name} draws from data without end only; "
            "set it in [sources.data], or type --sampler weighted"
        )
    if model is None and options:
        raise unknown_option(f"data.sampler_options.{next(iter(options))}", draft, (), owner)
    try:
        made = model.model_validate(options or {}) if model is not None else None
    except ValidationError as error:
        assert model is not None
        raise validation_error(error, draft, model, prefix="data.sampler_options", owner=owner) from error
    data = {"sampler": name, "sampler_options": made.model_dump(mode="json") if made is not None else {}}
    config = replaced(plan.config, "data", plan.config.data.model_copy(update=data))
    own = {path: draft.origin(path) for path in ("data.sampler", *(f"data.sampler_options.{key}" for key in data["sampler_options"]))}
    notes = [*plan.notes, *_unweighted(plan, name, draft)]
    return replace(plan, config=config, sampler_options=made, origins={**plan.origins, **own}, notes=tuple(notes))


def _unweighted(plan: Plan, name: str, draft: Draft) -> Iterator[str]:
    """Yield a sentence if the sampler of the sources ignores weights that differ, as those of rlcore do except ``weighted``."""
    ignores = plan.registry.owner(PluginKind.SAMPLER, name) == CORE and name != "weighted"
    if ignores and len({source.weight for source in plan.sources}) > 1:
        equal = "draws each source equally often, so their weights have no effect"
        yield f"the sampler of the sources: {draft.cite('data.sampler', name)} {equal}; --sampler weighted draws by weight"


def _sections(draft: Draft) -> tuple[SourceSection, ...]:
    """Return the tables as they are written. Raises ConfigError for a setting that is not in its place."""
    where, tables = draft.where("sources"), draft.data["sources"]
    if not isinstance(tables, list | tuple) or not all(isinstance(table, Mapping) for table in tables):
        raise ConfigError(f'{where}sources must be a list of tables, each with a name, written [[sources]] and name = "…"')
    for number, table in enumerate(tables):
        for path in _paths(table):
            known = RunConfig.model_fields.keys() - {"sources"}
            if path.partition(".")[0] in known and not of_a_source(path):
                place = draft.where(f"sources.{number}.{path}")
                raise ConfigError(
                    f"{place}{path} is a setting of the whole run, and a source cannot have its own; write it in [{path.partition('.')[0]}]"
                )
    try:
        sections = RunConfig.model_validate({"sources": tables}).sources
    except ValidationError as error:
        raise validation_error(error, draft, RunConfig) from error
    names = [section.name for section in sections]
    for number, name in enumerate(names):
        if not is_folder_name(name) or name in names[:number]:
            rule = "is the name of two sources" if is_folder_name(name) else f"is not a plain word ({PLAIN_WORD})"
            said = f"name = {name!r} of [[sources]] {rule}: metrics and logs refer to a source by it; write another name"
            raise ConfigError(f"{draft.where(f'sources.{number}.name')}{said}")
    for path in _IN_EACH_SOURCE:
        if value := get_path(draft.data, path):
            table, _, key = path.partition(".")
            raise ConfigError(f"{draft.cite(path, value)}: with [[sources]], each source has its own; write {key} in [sources.{table}]")
    return sections


def _paths(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield from (f"{key}.{inner}" for inner in value) if isinstance(value, Mapping) and value else (key,)


def _layer(owner: Layer, number: int, table: Mapping[str, Any]) -> Layer:
    data = {key: value for key, value in table.items() if key not in ("name", "weight")}
    return replace(owner, data=data, moved={section: f"sources.{number}.{section}" for section in data})


def _each(names: Sequence[str], stacks: Sequence[Stack], planned: Callable[[Stack], Plan]) -> list[Plan]:
    """Return the plan of each source. An error names its source, unless all sources have it."""
    plans: list[Plan] = []
    errors: list[tuple[str, ConfigError | PluginError]] = []
    for name, stack in zip(names, stacks, strict=True):
        try:
            plans.append(planned(stack))
        except (ConfigError, PluginError) as error:
            errors.append((name, error))
    if not errors:
        return plans
    name, first = errors[0]
    if len({str(other) for _, other in errors}) == 1 and len(errors) == len(names):
        raise first
    raise type(first)(f"source {name}: {first}") from first


def _together(sources: Sequence[SourcePlan]) -> Iterator[Layer]:
    """Yield a layer for each decision in which the sources differ, with the answer that suits all of them."""
    for path, best in ((STALENESS, min), (OLD_LOGPROBS, max)):  # "trainer" > "rollout"
        values = {source.name: get_path(source.plan.config, path) for source in sources}
        if len(set(values.values())) > 1:
            chosen = best(values.values())
            name = next(name for name, value in values.items() if value == chosen)
            why = next(source for source in sources if source.name == name).plan.origins[path].detail.removeprefix("auto: ")
            section, _, key = path.partition(".")
            yield Layer(name="auto", detail=f"auto: as source {name} needs it: {why}", data={section: {key: chosen}})


def _check_flags(flags: Mapping[str, Any], sources: Sequence[SourcePlan]) -> None:
    """Raise ConfigError for a flag that no source uses, because each has its own value."""
    origins = [item for source in sources for item in source.plan.origins.items()]
    for path, given in flags.items():
        head = "rewards" if path.startswith("rewards") else path
        if of_a_source(path) and not any(origin.layer == "flag" for known, origin in origins if known.startswith(head)):
            raise ConfigError(
                f"{getattr(given, 'flag', path)} has no effect: each of [[sources]] sets its own {path}; change it there, or leave it out"
            )


def _joined(sources: tuple[SourcePlan, ...], sections: Sequence[SourceSection], draft: Draft) -> Plan:
    """Return the plan of the run. Its settings are those of the first source, except those that only sources have."""
    plans, first = [source.plan for source in sources], sources[0].plan
    tasks = _tasks(sources)
    config = replaced(replaced(first.config, "data.dataset", ""), "eval.eval_dataset", tasks)
    for path in ("inference.max_in_flight", "training.train_microbatch_size"):
        config = replaced(config, path, max(int(get_path(plan.config, path)) for plan in plans))
    config = replaced(config, "rewards", ())
    config = replaced(config, "eval.eval_samples", max(plan.config.eval.eval_samples for plan in plans))
    _check_run(replaced(config, "sources", tuple(sections)), plans, draft)
    resolved = tuple(_resolved(section, plan) for section, plan in zip(sections, plans, strict=True))
    return replace(
        first,
        config=replaced(config, "sources", resolved),
        origins=dict(_origins(plans, draft)),
        notes=tuple(_said(sources, lambda plan: plan.notes)),
        derived=tuple(_said(sources, lambda plan: plan.derived)),
        missing=tuple(dict.fromkeys(item for plan in plans for item in plan.missing)),
        reproducible=next((plan.reproducible for plan in plans if plan.reproducible.level != "bitwise"), first.reproducible),
        reward_options=(),
        sources=sources,
    )


def _tasks(sources: Sequence[SourcePlan]) -> dict[str, str]:
    """Return the evaluation tasks of all sources. Raises ConfigError if two sources have the same."""
    tasks: dict[str, str] = {}
    for source in sources:
        own = source.plan.config.eval.eval_dataset
        if twice := next((task for task in own if task in tasks), None):
            raise ConfigError(f"source {source.name}: another source has an evaluation task {twice!r}, too; give one of them another name")
        tasks |= own
    return tasks


def _check_run(config: RunConfig, plans: Sequence[Plan], draft: Draft) -> None:
    """Check the rules that read the settings of all sources."""
    filtering = [plan.config.algorithm for plan in plans if plan.config.algorithm.filters or plan.config.algorithm.filter_range]
    config = replaced(config, "algorithm", (filtering or [config.algorithm])[0])
    config = replaced(config, "sampling.num_generations", max(plan.config.sampling.num_generations for plan in plans))
    nothing = PluginSelection(parts={}, missing=(), decided=Decided(autos={}, single="", several="", apart=""))
    check_rules(RuleContext(config=config, chosen=nothing, draft=draft), left_out=RULES_OF_A_SOURCE)


def _resolved(section: SourceSection, plan: Plan) -> SourceSection:
    plain = {name: values for name, values in plan.config.plain().items() if isinstance(values, Mapping)}
    tables = {name: {key: value for key, value in plain[name].items() if of_a_source(f"{name}.{key}")} for name in plain}
    own = {name: table for name, table in tables.items() if name in SourceSection.model_fields}
    return section.model_copy(update={**own, "rewards": plan.config.rewards})


def _origins(plans: Sequence[Plan], draft: Draft) -> Iterator[tuple[str, Origin]]:
    yield from ((path, origin) for path, origin in plans[0].origins.items() if not of_a_source(path))
    for number, (plan, table) in enumerate(zip(plans, draft.data["sources"], strict=True)):
        for key in ("name", "weight"):
            yield f"sources.{number}.{key}", draft.origin("sources") if key in table else Origin("core", "default")
        yield from ((f"sources.{number}.{path}", origin) for path, origin in plan.origins.items() if of_a_source(path))


def _said(sources: Sequence[SourcePlan], of: Callable[[Plan], Sequence[str]]) -> Iterator[str]:
    """Yield the sentences about all sources once, and then those about some, with the name of the source."""
    every = [of(source.plan) for source in sources]
    shared = [said for said in dict.fromkeys(every[0]) if all(said in one for one in every)]
    yield from shared
    for source, one in zip(sources, every, strict=True):
        yield from (f"{source.label}{said}" for said in one if said not in shared)
