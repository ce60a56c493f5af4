"""Look up the plugins that a configuration names: their specs, owners and option models.

Reports plugins that are not installed, and requests that a backend does not support."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, get_args

from pydantic import BaseModel

from rlcore.config.data_source import order_of, source_of
from rlcore.config.layers import Draft, get_path
from rlcore.config.resolve import CORRECTION, Decided, decide
from rlcore.config.run_config import RunConfig
from rlcore.config.section import Dtype, TrainingDtype
from rlcore.contracts.errors import PluginError
from rlcore.contracts.specs import (
    LABELS,
    AlgorithmSpec,
    InferenceBackendSpec,
    InferenceCapabilities,
    PluginKind,
    RuntimeSpec,
    Spec,
    TrackerSpec,
    TrainingBackendSpec,
    TrainingCapabilities,
)
from rlcore.host.devices import device_of
from rlcore.registry.install import RELEASED, install_line
from rlcore.registry.known_plugins import NotInstalledError
from rlcore.registry.plugin_registry import Registry

__all__ = [
    *("ENVIRONMENT", "LISTS", "OWN_TABLES", "SAMPLER", "UPDATE_PARTS"),
    *("Missing", "Part", "PluginSelection", "choose", "choose_recipe", "unsupported"),
]


_SETTINGS: Mapping[str, PluginKind] = {
    "run.runtime": PluginKind.RUNTIME,
    "inference.name": PluginKind.INFERENCE,
    "training.name": PluginKind.TRAINING,
    "weights.transport": PluginKind.TRANSFER,
    "algorithm.estimator": PluginKind.ESTIMATOR,
    "algorithm.loss": PluginKind.LOSS,
    "sampling.conversation": PluginKind.CONVERSATION,
}
"""Settings that name one plugin each, and its kind."""

ENVIRONMENT = "sampling.environment"
SAMPLER = "data.sampler"
UPDATE_PARTS: Mapping[str, PluginKind] = {
    "algorithm.loss_variation": PluginKind.AGGREGATION,
    "algorithm.kl_kind": PluginKind.KL,
    CORRECTION: PluginKind.CORRECTION,
    "training.lr_schedule": PluginKind.LR_SCHEDULE,
    "training.model_hook": PluginKind.MODEL_HOOK,
    "training.optimizer": PluginKind.OPTIMIZER,
}
"""Settings that name a small part of an update ("none": no such part), with the kind of plugin. Each has its own options table."""
OWN_TABLES: Mapping[str, PluginKind] = {**UPDATE_PARTS, ENVIRONMENT: PluginKind.ENVIRONMENT}
"""The same for every setting that may name no plugin."""
LISTS: Mapping[str, tuple[PluginKind, str]] = {
    "log.trackers": (PluginKind.TRACKER, "log.options"),
    "algorithm.filters": (PluginKind.FILTER, "algorithm.filter_options"),
    "run.controllers": (PluginKind.CONTROLLER, "run.controller_options"),
}
"""Settings that name several plugins, with their kind and the table that has a table of options for each, by name."""
_TABLES = dict(LISTS.values())


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that the run needs and that is not available.

    ``command`` installs or provides it ("" if no command does). ``path`` is the setting that names it ("" if no setting does)."""

    what: str
    command: str = ""
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.what}: {self.command}" if self.command else self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One chosen plugin: its kind, the setting that names it, the path of its options, and its entry in the registry."""

    kind: PluginKind
    path: str
    name: str
    options_path: str
    spec: Spec
    owner: str
    model: type[BaseModel] | None

    @property
    def label(self) -> str:
        """A label such as ``loss clipped of rlcore``."""
        return f"{LABELS[self.kind]} {self.name} of {self.owner}"

    @property
    def own_table(self) -> str:
        """The separate options table of a loss or an estimator, for option names that both have; "" for other plugins."""
        return f"{self.path}_options" if self.options_path == "algorithm.options" else ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of its options."""
        return tuple(self.model.model_fields) if self.model else ()


@dataclass(frozen=True, kw_only=True)
class PluginSelection:
    """Every part that could be found, by the path of the setting that names it; what could not be found; and what was decided."""

    parts: dict[str, Part]
    missing: tuple[Missing, ...]
    decided: Decided

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts.values())

    def spec(self, path: str) -> Any:
        """Return the spec of the plugin that ``path`` names, or None if it is not installed."""
        part = self.parts.get(path)
        return part.spec if part else None

    def place(self, part: Part, key: str) -> str:
        """Return the path of an option of the plugin. The option is in the plugin's own table if loss and estimator share its name."""
        twin = any(other is not part and other.options_path == part.options_path and key in other.fields for other in self)
        return f"{part.own_table if twin and part.own_table else part.options_path}.{key}"


def choose_recipe(config: RunConfig, registry: Registry, draft: Draft) -> tuple[AlgorithmSpec | None, tuple[Missing, ...]]:
    """Look up the recipe by name. Return None and the missing plugin if the name is known but not installed."""
    found = _find(PluginKind.ALGORITHM, config.algorithm.name, "algorithm.name", registry, draft)
    if isinstance(found, Missing):
        return None, (found,)
    return (found.spec if isinstance(found.spec, AlgorithmSpec) else None), ()


def choose(config: RunConfig, recipe: AlgorithmSpec | None, registry: Registry, draft: Draft, exact: str = "") -> PluginSelection:
    """Choose every plugin except the recipe.

    :param exact: why ``max_staleness = "auto"`` must be 0; "" if the configuration decides."""
    decided = decide(config, recipe, registry, exact)
    autos = decided.autos

    def named(path: str) -> str:
        return str(autos[path][0] if path in autos else get_path(config, path))

    wanted = [(kind, path, named(path)) for path, kind in _SETTINGS.items()]
    wanted += [(PluginKind.REWARD, f"rewards.{index}.name", reward.name) for index, reward in enumerate(config.rewards)]
    always = ("training.lr_schedule", "training.optimizer")  # "none" is no value of these, so it is looked up and refused
    wanted += [(kind, path, named(path)) for path, kind in OWN_TABLES.items() if path in always or named(path) != "none"]
    wanted.append((PluginKind.SAMPLER, SAMPLER, order_of(config, registry)))
    data_sets = enumerate(config.data.sources)
    wanted += [(PluginKind.DATA, f"data.dataset.{index}.source", source_of(source, registry)) for index, source in data_sets]
    for path, (kind, _) in LISTS.items():
        wanted += [(kind, f"{path}.{index}", name) for index, name in enumerate(get_path(config, path))]
    parts: dict[str, Part] = {}
    missing: list[Missing] = []
    for kind, path, name in wanted:
        if path in autos and name == "auto":
            continue
        owner = registry.owner(PluginKind.ALGORITHM, config.algorithm.name) if recipe else ""
        by = f"recipe {recipe.name} of {owner}" if recipe and path in autos and path.startswith("algorithm.") else ""
        found = _find(kind, name, path, registry, draft, by)
        if isinstance(found, Missing):
            missing.append(found)
            continue
        parts[path] = found
        if get_path(config, f"{path.partition('.')[0]}.environment") is None:  # otherwise its engine is installed in that environment
            missing += _engine(found)
    return PluginSelection(parts=parts, missing=tuple(missing), decided=decided)


def _find(kind: PluginKind, name: str, path: str, registry: Registry, draft: Draft, recipe: str = "") -> Part | Missing:
    """Look up one plugin. ``recipe`` is the recipe that names it, or "" if the user does."""
    try:
        spec = registry.spec(kind, name)
        model = None if kind is PluginKind.ALGORITHM else registry.options_model(kind, name)
        owner = registry.owner(kind, name)
    except NotInstalledError as error:
        named = f", which {recipe} names," if recipe else ""
        return Missing(f"{LABELS[kind]} {name}{named} is not installed", error.pip, path)
    except PluginError as error:
        where = draft.where(path) or (f"{recipe}: " if recipe else "")
        raise PluginError(f"{where}{error}") from error
    table = f"{path}_options" if path in OWN_TABLES or path == SAMPLER else f"{path.rpartition('.')[0]}.options"  # next to the name
    options_path = f"{_TABLES[kind]}.{spec.name}" if kind in _TABLES else table
    return Part(kind=kind, path=path, name=name, options_path=options_path, spec=spec, owner=owner, model=model)


def _engine(part: Part) -> list[Missing]:
    """Return the modules that a backend, runtime or tracker needs in addition to its distribution, if they are not found. Imports
    nothing."""
    spec = part.spec
    if not isinstance(spec, InferenceBackendSpec | TrainingBackendSpec | RuntimeSpec | TrackerSpec) or not spec.requires_module:
        return []
    if find_spec(spec.requires_module.partition(".")[0]) is not None:
        return []
    what = f"{LABELS[part.kind]} {part.name} needs the module {spec.requires_module}, which is not installed"
    return [Missing(what, spec.install or install_line(part.owner if part.owner in RELEASED else f"{part.owner}[engine]"), part.path)]


# --- features that backends offer ----------------------------------------------------------------------------------------

_Capabilities = InferenceCapabilities | TrainingCapabilities
_LAYOUTS = (
    ("inference.producer_tensor_parallel_size", "tensor", "-ptp", 1),
    ("training.tensor_parallel_size", "tensor", "-tp", 1),
    ("training.pipeline_parallel_size", "pipeline", "-pp", 1),
    ("training.context_parallel_size", "context", "--context-parallel-size", 1),
    ("training.expert_parallel_size", "expert", "--expert-parallel-size", 1),
    ("training.zero_stage", "zero", "-zero", 0),
)
"""A setting, the layout that a value above the last column requires, and the flag."""


def unsupported(offered: _Capabilities, name: str, config: RunConfig, cite: Callable[[str], str], way: str = "host") -> str | None:
    """Return a sentence about the first feature that the run needs and the backend ``name`` does not offer, or None.

    :param cite: formats a setting and its value as the user typed them, from its path.
    :param way: the route of the weight transfer."""
    kind = "training" if isinstance(offered, TrainingCapabilities) else "inference"
    backend, layouts = f"{kind} backend {name}", f"(it offers {', '.join(sorted(offered.layouts))})"
    dtypes = get_args(TrainingDtype if kind == "training" else Dtype)
    for key, choices in (("dtype", offered.dtypes.intersection(dtypes)), ("device", offered.devices | {"auto"})):
        if get_path(config, f"{kind}.{key}").partition(":")[0] not in choices:
            advice = f"type --{kind}-{key} {' or '.join(sorted(choices))}" if choices else "name another backend"
            return f"{cite(f'{kind}.{key}')}: {backend} does not offer it; {advice}"
    for path, layout, flag, most in _LAYOUTS:
        if path.startswith(kind) and get_path(config, path) > most and layout not in offered.layouts:
            return f"{cite(path)}: {backend} does not offer the layout {layout} {layouts}; type {flag} {most}"
    if isinstance(offered, TrainingCapabilities) and config.training.lora_rank and not offered.lora:
        return f"{cite('training.lora_rank')}: {backend} does not train adapters (capabilities.lora is False); type --lora-rank 0"
    if isinstance(offered, TrainingCapabilities) and config.training.model_hook != "none" and not offered.model_hooks:
        lacks = f"{backend} does not take model hooks (capabilities.model_hooks is False)"
        return f"{cite('training.model_hook')}: {lacks}; type --model-hook none"
    if isinstance(offered, TrainingCapabilities) and config.training.chooses_optimizer and not offered.optimizers:
        advice = "type --optimizer adamw, or name another --trainer"
        return f"{cite('training.optimizer')}: {backend} has only its own AdamW (capabilities.optimizers is False); {advice}"
    if isinstance(offered, TrainingCapabilities) and config.model.reference_sync_steps and not offered.syncs_reference:
        lacks = f"{backend} does not move its reference (capabilities.syncs_reference is False)"
        return f"{cite('model.reference_sync_steps')}: {lacks}; type --reference-sync-steps 0"
    if isinstance(offered, TrainingCapabilities) and (config.log.export_dtype or "") not in {"", *offered.exports}:
        advice = f"type --export-dtype {' or '.join(sorted({'none', *offered.exports}))}"
        return f"{cite('log.export_dtype')}: {backend} does not write it (capabilities.exports); {advice}"
    for path in ["sampling.min_p"] * (config.sampling.min_p > 0) + [f"sampling.extra.{name}" for name in config.sampling.extra]:
        asked = path.rpartition(".")[2]
        if isinstance(offered, InferenceCapabilities) and asked not in offered.sampling:
            known = f"capabilities.sampling: {', '.join(sorted(offered.sampling)) or 'nothing'}"
            advice = "type --min-p 0" if path == "sampling.min_p" else "leave it out, or name another --backend"
            return f"{cite(path)}: {backend} does not understand {asked} ({known}); {advice}"
    if isinstance(offered, InferenceCapabilities) and way not in offered.transfers:
        ways = ", ".join(sorted(offered.transfers))
        return (
            f"{cite('weights.transport')} delivers weights by {way}, and {backend} accepts them by {ways} (capabilities.transfers); name a "
            "--transport that does so (rlcore plugins lists the installed ones), or another --backend"
        )
    if isinstance(offered, InferenceCapabilities) and config.training.environment and not offered.scores:
        return (
            f"{cite('training.environment')} gives trainers their own libraries, and {backend} cannot show that it reads the same model "
            "(capabilities.scores is False); leave out --training-environment, or name another --backend"
        )
    if isinstance(offered, InferenceCapabilities) and config.run.placement == "colocated":
        device = device_of(config.inference.device, offered.devices).partition(":")[0]
        keeps = "" if offered.sleeps else "never gives its device back (capabilities.sleeps is False)"
        if offered.sleeps_on and device not in ("auto", *offered.sleeps_on):
            keeps = f"gives back only {', '.join(sorted(offered.sleeps_on))}, not {device} (capabilities.sleeps_on)"
        if keeps:
            turns = "lets generation and training alternate on one device"
            return f"{cite('run.placement')} {turns}, and {backend} {keeps}; type --placement split, or name another --backend"
    ranks = config.training.data_parallel_size
    if kind == "inference" or ranks == 1 or "data" in offered.layouts:
        return None
    return (
        f"{cite('training.num_trainers')} asks for {ranks} data-parallel ranks, and {backend} does not offer the layout data {layouts}; "
        f"type -t {config.training.num_trainers // ranks}"
    )
