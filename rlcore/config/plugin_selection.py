"""The plugins that a configuration chooses by name, looked up: specs, owners, option models; what is not installed, and what a
backend does not offer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, get_args

from pydantic import BaseModel

from rlcore.config.correction_choice import CORRECTION, correction_choice, engine_differs
from rlcore.config.data_source import source_of
from rlcore.config.layers import Draft, get_path, replaced
from rlcore.config.run_config import Dtype, RunConfig, TrainingDtype
from rlcore.config.staleness import STALENESS, staleness_choice, usable
from rlcore.config.transfer_choice import transfer_name
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
from rlcore.registry.known_plugins import NotInstalledError, distribution_of, known_names, known_training
from rlcore.registry.plugin_registry import Registry

__all__ = ["LOSS_WRAPPERS", "Missing", "Part", "PluginSelection", "choose", "choose_recipe", "unsupported"]


LOSS_WRAPPERS: Mapping[str, PluginKind] = {
    "algorithm.loss_variation": PluginKind.AGGREGATION,
    "algorithm.kl_kind": PluginKind.KL,
    CORRECTION: PluginKind.CORRECTION,
}
"""Settings that name what the core applies around a loss ("none": nothing), and its kind; options stand in a table of their own."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that the run needs and that is not here, the command that brings it ("" where none does), and the ``path`` of the setting
    that names it ("" where it is named in some other way)."""

    what: str
    command: str = ""
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.what}: {self.command}" if self.command else self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One chosen plugin: its kind, the setting that names it, where its options stand, and what the registry knows of it."""

    kind: PluginKind
    path: str
    name: str
    options_path: str
    spec: Spec
    owner: str
    model: type[BaseModel] | None

    @property
    def label(self) -> str:
        """``loss clipped of rlcore``."""
        return f"{LABELS[self.kind]} {self.name} of {self.owner}"

    @property
    def own_table(self) -> str:
        """Of a loss or an estimator, where an option stands whose name the other one has too; "" of other plugins."""
        return f"{self.path}_options" if self.options_path == "algorithm.options" else ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of its options."""
        return tuple(self.model.model_fields) if self.model else ()


@dataclass(frozen=True, kw_only=True)
class PluginSelection:
    """Every part that could be found, by the path of the setting that names it, and what could not.

    ``autos``: by the path of the setting, the name (of ``max_staleness`` the number) that was chosen and why, if the user left that to
    rlcore; "auto" stays if no transfer fits, or if the recipe that names an estimator or a loss is not installed. ``single``,
    ``several``: the runtimes to name in a sentence to a user who needs one process, or more than one."""

    parts: dict[str, Part]
    missing: tuple[Missing, ...]
    autos: Mapping[str, tuple[Any, str]]
    single: str
    several: str
    apart: str

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts.values())

    def spec(self, path: str) -> Any:
        """The spec of the part named by ``path``, None where it is not installed."""
        part = self.parts.get(path)
        return part.spec if part else None

    def place(self, part: Part, key: str) -> str:
        """The path of an option of the part: in its own table if loss and estimator both have one of that name."""
        twin = any(other is not part and other.options_path == part.options_path and key in other.fields for other in self)
        return f"{part.own_table if twin and part.own_table else part.options_path}.{key}"


def training_name(config: RunConfig, registry: Registry) -> tuple[str, str]:
    """The training backend with ``auto`` resolved, and why."""
    section = config.training
    if section.name != "auto":
        return section.name, ""
    specs = [spec for spec in registry.specs(PluginKind.TRAINING, claimed=True) if isinstance(spec, TrainingBackendSpec)]
    if section.pipeline_parallel_size > 1:
        able = [spec for spec in specs if spec.capabilities and "pipeline" in spec.capabilities.layouts]
        return _preferred(registry, PluginKind.TRAINING, able, known_training(pipeline=True)), "pipeline_parallel_size > 1"
    if section.lora_rank:
        able = [spec for spec in specs if getattr(spec.capabilities, "lora", False)]
        return _preferred(registry, PluginKind.TRAINING, able, known_training(pipeline=False)), "lora_rank"
    return _preferred(registry, PluginKind.TRAINING, specs, known_training(pipeline=False)), "no pipeline parallelism"


def preferred_runtime(registry: Registry, *, several: bool) -> str:
    """The runtime of one process, or of several, that ``auto`` means."""
    specs = [spec for spec in registry.specs(PluginKind.RUNTIME, claimed=True) if isinstance(spec, RuntimeSpec)]
    alone = [spec for spec in specs if spec.alternating or not spec.several]
    far = [spec for spec in specs if spec.several and not spec.alternating]
    return _preferred(registry, PluginKind.RUNTIME, (far or [spec for spec in specs if spec.several]) if several else alone)


def _preferred(registry: Registry, kind: PluginKind, specs: Sequence[RuntimeSpec | TrainingBackendSpec], usual: str = "") -> str:
    """The one with the highest preference, also if two plugins claim its name: that is refused when it is looked up. Of none, a name that
    is known and not installed: one that is released before others, of these the ``usual`` one."""
    able = [(-spec.preference, spec.name) for spec in specs if spec.preference >= 0]
    names = known_names(kind)
    known = [(registry.has(kind, name), distribution_of(kind, name) not in RELEASED, name != usual, name) for name in names]
    return min(able)[-1] if able else min(known)[-1]


def runtime_name(config: RunConfig, single: str, several: str, apart: str) -> tuple[str, str]:
    """The runtime with ``auto`` resolved, and why: ``single`` for one producer and one trainer, ``several`` for more of them and for
    settings that a runtime of one process does not read; ``apart`` if these two must not share a process."""
    run = config.run
    if run.runtime != "auto":
        return run.runtime, ""
    beside = (STALENESS, "inference.environment", "training.environment") if apart != single else ()
    reasons = [
        f"num_trainers is {config.training.num_trainers}" if config.training.num_trainers > 1 else "",
        f"num_inferencer is {config.inference.num_inferencer}" if config.inference.num_inferencer > 1 else "",
        f"master_address is {run.master_address}" if run.master_address else "",
        f"ray_dir is {run.ray_dir}" if run.ray_dir else "",
        *(f"{path.rpartition('.')[2]} is {value}" for path in beside if (value := get_path(config, path)) not in ("auto", 0, None)),
    ]
    why = " and ".join(reason for reason in reasons if reason)
    return (several, why) if why else (single, "one trainer and one producer")


def choose_recipe(config: RunConfig, registry: Registry, draft: Draft) -> tuple[AlgorithmSpec | None, tuple[Missing, ...]]:
    """The recipe by name; None and what is missing where it is known but not installed."""
    found = _find(PluginKind.ALGORITHM, config.algorithm.name, "algorithm.name", registry, draft)
    if isinstance(found, Missing):
        return None, (found,)
    return (found.spec if isinstance(found.spec, AlgorithmSpec) else None), ()


def choose(config: RunConfig, recipe: AlgorithmSpec | None, registry: Registry, draft: Draft, exact: str = "") -> PluginSelection:
    """Everything but the recipe itself. ``exact``: why ``max_staleness = "auto"`` must be 0, "" if the configuration decides."""
    single, several = (preferred_runtime(registry, several=several) for several in (False, True))
    alone = usable(registry, PluginKind.RUNTIME, single)
    apart = several if isinstance(alone, RuntimeSpec) and alone.alternating and not alone.several else single
    runtime, training = runtime_name(config, single, several, apart), training_name(config, registry)
    autos: dict[str, tuple[Any, str]] = {}
    loss = recipe.loss if recipe and config.algorithm.loss == "auto" else config.algorithm.loss
    if config.algorithm.mismatch_correction == "auto":
        autos[CORRECTION] = correction_choice(config, registry, loss=loss, training=training[0])
        config = replaced(config, CORRECTION, autos[CORRECTION][0])
    if config.schedule.max_staleness == "auto":
        autos[STALENESS] = (0, exact) if exact else staleness_choice(config, registry, runtime=runtime[0], loss=loss, training=training[0])
        config = replaced(config, STALENESS, autos[STALENESS][0])
    if config.algorithm.old_logprobs == "auto" and config.schedule.max_staleness == 0:
        differs, why = engine_differs(config, registry, training[0])
        autos |= {"algorithm.old_logprobs": ("trainer", why)} if differs else {}
    left_open = {
        (PluginKind.RUNTIME, "run.runtime"): runtime,
        (PluginKind.TRAINING, "training.name"): training,
        (PluginKind.TRANSFER, "weights.transport"): transfer_name(config, runtime[0], registry),
        (PluginKind.ESTIMATOR, "algorithm.estimator"): (recipe.estimator, f"recipe {recipe.name}") if recipe else ("auto", ""),
        (PluginKind.LOSS, "algorithm.loss"): (recipe.loss, f"recipe {recipe.name}") if recipe else ("auto", ""),
    }
    autos |= {path: answer for (_, path), answer in left_open.items() if get_path(config, path) == "auto"}
    wanted = [(kind, path, autos[path][0] if path in autos else str(get_path(config, path))) for kind, path in left_open]
    wanted.insert(1, (PluginKind.INFERENCE, "inference.name", config.inference.name))
    wanted.append((PluginKind.CONVERSATION, "sampling.conversation", config.sampling.conversation))
    wanted += [(PluginKind.REWARD, f"rewards.{index}.name", reward.name) for index, reward in enumerate(config.rewards)]
    wanted += [(kind, path, str(get_path(config, path))) for path, kind in LOSS_WRAPPERS.items() if get_path(config, path) != "none"]
    data_sets = enumerate(config.data.sources)
    wanted += [(PluginKind.DATA, f"data.dataset.{index}.source", source_of(source, registry)) for index, source in data_sets]
    wanted += [(PluginKind.TRACKER, f"log.trackers.{index}", name) for index, name in enumerate(config.log.trackers)]
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
        if get_path(config, f"{path.partition('.')[0]}.environment") is None:  # else its engine is there, and not here
            missing += _engine(found)
    return PluginSelection(parts=parts, missing=tuple(missing), autos=autos, single=single, several=several, apart=apart)


def _find(kind: PluginKind, name: str, path: str, registry: Registry, draft: Draft, recipe: str = "") -> Part | Missing:
    """``recipe``: what names the part, "" if the user does."""
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
    table = f"{path}_options" if path in LOSS_WRAPPERS else f"{path.rpartition('.')[0]}.options"  # beside the name
    options_path = f"log.options.{spec.name}" if kind is PluginKind.TRACKER else table
    return Part(kind=kind, path=path, name=name, options_path=options_path, spec=spec, owner=owner, model=model)


def _engine(part: Part) -> list[Missing]:
    """Return what a backend, a runtime or a tracker needs beside its distribution and cannot be found. Nothing is imported."""
    spec = part.spec
    if not isinstance(spec, InferenceBackendSpec | TrainingBackendSpec | RuntimeSpec | TrackerSpec) or not spec.requires_module:
        return []
    if find_spec(spec.requires_module.partition(".")[0]) is not None:
        return []
    what = f"{LABELS[part.kind]} {part.name} needs the module {spec.requires_module}, which is not installed"
    return [Missing(what, spec.install or install_line(part.owner if part.owner in RELEASED else f"{part.owner}[engine]"), part.path)]


# --- what backends offer ------------------------------------------------------------------------------------------------

_Capabilities = InferenceCapabilities | TrainingCapabilities
_LAYOUTS = (
    ("inference.producer_tensor_parallel_size", "tensor", "-ptp", 1),
    ("training.tensor_parallel_size", "tensor", "-tp", 1),
    ("training.pipeline_parallel_size", "pipeline", "-pp", 1),
    ("training.context_parallel_size", "context", "--context-parallel-size", 1),
    ("training.expert_parallel_size", "expert", "--expert-parallel-size", 1),
    ("training.zero_stage", "zero", "-zero", 0),
)
"""A setting, the layout that values above the last column ask for, and its flag."""


def unsupported(offered: _Capabilities, name: str, config: RunConfig, cite: Callable[[str], str], way: str = "host") -> str | None:
    """A sentence on the first thing that the run asks of the backend ``name`` in vain. ``cite``: a setting, by its path, and its value as
    the user knows them; ``way``: that of the weight transfer."""
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
        return f"{cite('training.lora_rank')}: {backend} trains no adapters (capabilities.lora is False); type --lora-rank 0"
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
            f"{cite('weights.transport')} brings weights by {way}, and {backend} takes them by {ways} (capabilities.transfers); name a "
            "--transport that does so (rlcore plugins lists those that are installed), or another --backend"
        )
    if isinstance(offered, InferenceCapabilities) and config.training.environment and not offered.scores:
        return (
            f"{cite('training.environment')} gives trainers libraries of their own, and {backend} cannot show that it reads the same model "
            "(capabilities.scores is False); leave out --training-environment, or name another --backend"
        )
    if isinstance(offered, InferenceCapabilities) and config.run.placement == "colocated":
        device = device_of(config.inference.device, offered.devices).partition(":")[0]
        keeps = "" if offered.sleeps else "never gives its device back (capabilities.sleeps is False)"
        if offered.sleeps_on and device not in ("auto", *offered.sleeps_on):
            keeps = f"gives back {', '.join(sorted(offered.sleeps_on))} and not {device} (capabilities.sleeps_on)"
        if keeps:
            turns = "lets generation and training take turns on one device"
            return f"{cite('run.placement')} {turns}, and {backend} {keeps}; type --placement split, or name another --backend"
    ranks = config.training.data_parallel_size
    if kind == "inference" or ranks == 1 or "data" in offered.layouts:
        return None
    return (
        f"{cite('training.num_trainers')} asks for {ranks} data-parallel ranks, and {backend} does not offer the layout data {layouts}; "
        f"type -t {config.training.num_trainers // ranks}"
    )
