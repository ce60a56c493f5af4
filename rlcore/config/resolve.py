"""Every setting that can read "auto": the function that decides it, and why. Nothing that the user set is changed.

``decide`` needs specs only. ``resolve`` then fills in numbers, and ``resolve_declared`` the values that the chosen plugins declare. This
is the order; a decision may read those above it:

    run.runtime                     runtime_name: one process is enough, or several are needed
    training.name                   training_name: the preferred backend of those that can do what the run asks for
    algorithm.estimator, .loss      those of the recipe
    sampling.conversation           agent, if an environment is named
    algorithm.mismatch_correction   correction_choice: the engine may compute otherwise than the trainer
    schedule.max_staleness          staleness_choice: generation can run ahead, and the loss allows it
    algorithm.old_logprobs          old_logprobs: whose log probabilities are those of the old policy
    weights.transport               transfer_name: the transfer that reaches no farther than it must
    batch sizes and other numbers   NUMBERS
    algorithm.mismatch_range        resolve_declared: the usual range of the correction
    rewards.N.deadline              resolve_declared: the deadline that the reward asks for

Five settings are resolved where the answer is known: the source of a data set by its path (``data_source.py``), the row format by the
first row, the sampler by ``data.shuffle``, a device by its backend, and ``log.save_interval`` by the clock of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from rlcore.config.layers import get_path, replaced
from rlcore.config.run_config import RunConfig, SamplingSection
from rlcore.contracts.spec_base import Reach
from rlcore.contracts.specs import (
    AlgorithmSpec,
    InferenceBackendSpec,
    InferenceCapabilities,
    LossSpec,
    PluginKind,
    RewardSpec,
    RuntimeSpec,
    Spec,
    TrainingBackendSpec,
    TrainingCapabilities,
    WeightTransferSpec,
)
from rlcore.host.devices import cuda_devices, device_of
from rlcore.host.threads import cores
from rlcore.registry.install import RELEASED
from rlcore.registry.known_plugins import distribution_of, known_names, known_training, known_transfer
from rlcore.registry.plugin_registry import Registry

__all__ = [
    "CORRECTION",
    "OLD_LOGPROBS",
    "STALENESS",
    "Decided",
    "Resolved",
    "decide",
    "fitting_transfers",
    "in_one_process",
    "needed_reach",
    "preferred_runtime",
    "ratio_is_one",
    "resolve",
    "resolve_declared",
    "staleness_choice",
    "training_name",
    "transfer_name",
]

CORRECTION = "algorithm.mismatch_correction"
STALENESS = "schedule.max_staleness"
OLD_LOGPROBS = "algorithm.old_logprobs"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A setting that read "auto": its resolved value, and the reason."""

    path: str
    value: Any
    why: str

    def __str__(self) -> str:
        return f"{self.path} = {self.value} ({self.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The choices that specs alone decide.

    ``autos``: the value of a setting that reads "auto", and why, by the path of the setting; "auto" stays if no transfer fits, or if the
    recipe that names an estimator or a loss is not installed. ``single``, ``several``: the runtimes to name in a sentence to a user who
    needs one process, or more than one. ``apart``: the runtime to name if producer and trainer must not share a process.
    """

    autos: Mapping[str, tuple[Any, str]]
    single: str
    several: str
    apart: str


def decide(config: RunConfig, recipe: AlgorithmSpec | None, registry: Registry, exact: str = "") -> Decided:
    """Decide the names of plugins, the correction, the staleness and the old log probabilities.

    ``exact``: why ``max_staleness = "auto"`` must be 0, "" if the configuration decides.
    """
    single, several = (preferred_runtime(registry, several=several) for several in (False, True))
    alone = registry.usable(PluginKind.RUNTIME, single)
    apart = several if isinstance(alone, RuntimeSpec) and alone.alternating and not alone.several else single
    runtime, training = runtime_name(config, single, several, apart), training_name(config, registry)
    loss = recipe.loss if recipe and config.algorithm.loss == "auto" else config.algorithm.loss
    autos: dict[str, tuple[Any, str]] = {}
    if config.algorithm.mismatch_correction == "auto":
        autos[CORRECTION] = correction_choice(config, registry, loss=loss, training=training[0])
        config = replaced(config, CORRECTION, autos[CORRECTION][0])
    if config.schedule.max_staleness == "auto":
        autos[STALENESS] = (0, exact) if exact else staleness_choice(config, registry, runtime=runtime[0], loss=loss, training=training[0])
        config = replaced(config, STALENESS, autos[STALENESS][0])
    if config.algorithm.old_logprobs == "auto":
        autos[OLD_LOGPROBS] = old_logprobs(config, registry, training=training[0])
    if config.sampling.environment != "none" and config.sampling.conversation == SamplingSection().conversation:
        autos["sampling.conversation"] = ("agent", f"environment {config.sampling.environment}")
    names = {
        "run.runtime": runtime,
        "training.name": training,
        "weights.transport": transfer_name(config, runtime[0], registry),
        "algorithm.estimator": (recipe.estimator, f"recipe {recipe.name}") if recipe else ("auto", ""),
        "algorithm.loss": (recipe.loss, f"recipe {recipe.name}") if recipe else ("auto", ""),
    }
    autos |= {path: answer for path, answer in names.items() if get_path(config, path) == "auto"}
    return Decided(autos=autos, single=single, several=several, apart=apart)


# --- run.runtime -------------------------------------------------------------------------------------------------------


def runtime_name(config: RunConfig, single: str, several: str, apart: str) -> tuple[str, str]:
    """Return the runtime with ``auto`` resolved, and why.

    ``single`` is for one producer and one trainer; ``several`` is for more of them, and for settings that a runtime of one process does not
    read. If ``apart`` is another one than ``single``, the latter alternates and has one environment.
    """
    run = config.run
    if run.runtime != "auto":
        return run.runtime, ""
    settings: dict[str, Any] = {
        "num_trainers": config.training.num_trainers if config.training.num_trainers > 1 else None,
        "num_inferencer": config.inference.num_inferencer if config.inference.num_inferencer > 1 else None,
        "master_address": run.master_address or None,
        "ray_dir": run.ray_dir or None,
    }
    reasons = [f"{name} is {value}" for name, value in settings.items() if value is not None]
    if apart != single:
        ahead = config.schedule.max_staleness
        reasons += [] if ahead == "auto" or config.schedule.alternating else [f"max_staleness is {ahead}"]
        environments = (config.inference.environment, config.training.environment)
        reasons += [f"environment is {folder}" for folder in environments if folder is not None]
    return (several, " and ".join(reasons)) if reasons else (single, "one trainer and one producer")


def preferred_runtime(registry: Registry, *, several: bool) -> str:
    """Return the runtime of one process, or of several, that ``auto`` means."""
    specs = [spec for spec in registry.specs(PluginKind.RUNTIME, claimed=True) if isinstance(spec, RuntimeSpec)]
    alone = [spec for spec in specs if spec.alternating or not spec.several]
    far = [spec for spec in specs if spec.several and not spec.alternating]
    return _preferred(registry, PluginKind.RUNTIME, (far or [spec for spec in specs if spec.several]) if several else alone)


def _preferred(registry: Registry, kind: PluginKind, specs: Sequence[RuntimeSpec | TrainingBackendSpec], usual: str = "") -> str:
    """Return the name with the highest preference, even if two plugins claim it: the lookup refuses it later. If there are no specs, return
    a known name that is not installed: one that is released before others, and of these the ``usual`` one."""
    able = [(-spec.preference, spec.name) for spec in specs if spec.preference >= 0]
    names = known_names(kind)
    known = [(registry.has(kind, name), distribution_of(kind, name) not in RELEASED, name != usual, name) for name in names]
    return min(able)[-1] if able else min(known)[-1]


# --- training.name -----------------------------------------------------------------------------------------------------


def training_name(config: RunConfig, registry: Registry) -> tuple[str, str]:
    """Return the training backend with ``auto`` resolved, and why."""
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


# --- algorithm.mismatch_correction -------------------------------------------------------------------------------------

WEIGHS = "truncated"
"""Weighs each token by its own ratio, capped at 2. The weight is bounded whatever the engine reports, and one token's ratio cannot remove
another token of a long response."""


def correction_choice(config: RunConfig, registry: Registry, *, loss: str, training: str) -> tuple[str, str]:
    """Return ``none`` or ``truncated``, and why: ``truncated`` if the backends may differ by more than rounding in float32, and the
    correction can weigh the difference.

    Names are resolved. The rules never refuse the answer."""
    differs, why = engine_differs(config, registry, training)
    if differs and (needless := _unable(config, registry, loss)):
        return "none", f"{why}, but {needless}"
    return (WEIGHS if differs else "none"), why


def engine_differs(config: RunConfig, registry: Registry, training: str) -> tuple[bool, str]:
    """Return whether the backends may differ by more than rounding in float32, and why."""
    backends = {PluginKind.INFERENCE: config.inference.name, PluginKind.TRAINING: training}
    if unknown := [f"{kind} backend {name}" for kind, name in backends.items() if registry.usable(kind, name) is None]:
        return False, f"{' and '.join(unknown)} is not known here"
    ours, theirs = (getattr(_capabilities(registry, kind, name), "implementation", "") for kind, name in backends.items())
    if not ours or ours != theirs:
        return True, f"inference backend {config.inference.name} and training backend {training} compute differently, or do not declare how"
    coarse = [f"{role} in {dtype}" for role, dtype in (("inference", config.inference.dtype), ("training", config.training.dtype))]
    if coarse := [said for said in coarse if not said.endswith("float32")]:
        return True, f"{' and '.join(coarse)}: its rounding makes the log probabilities of sampler and trainer differ"
    return False, f"inference and training both compute as {ours} in float32, so their log probabilities are the same"


def _unable(config: RunConfig, registry: Registry, loss: str) -> str:
    """Return why no weight of tokens is allowed, "" if one is."""
    spec = registry.usable(PluginKind.LOSS, loss)
    if not isinstance(spec, LossSpec):
        return f"loss {loss} is not known here"
    if spec.sequence_ratio:
        return (
            f"loss {loss} has one ratio for a whole response, and the product over a long response soon leaves any range; "
            "--mismatch-correction sequence_truncated suits short responses"
        )
    if config.sampling.truncates:
        return f"{config.sampling.cut[0]} truncates the sampler, whose log probabilities are not the policy's"
    if config.algorithm.old_logprobs == "rollout":
        return "with old_logprobs rollout, the loss already has the ratio to the sampler"
    return "" if registry.usable(PluginKind.CORRECTION, WEIGHS) else f"{WEIGHS} is not available here"


def _capabilities(registry: Registry, kind: PluginKind, name: str) -> Any:
    """Return what a backend declares, None if that is not known."""
    return getattr(registry.usable(kind, name), "capabilities", None)


# --- schedule.max_staleness --------------------------------------------------------------------------------------------


def staleness_choice(config: RunConfig, registry: Registry, *, runtime: str, loss: str, training: str) -> tuple[int, str]:
    """Return 0 or 1, and why: 1 if something weighs stale data, and the producer has a core, a device or a host of its own.

    Names are resolved. A plugin that is not installed or cannot be used gives 0; the lookup reports it later."""
    ahead = replaced(config, STALENESS, 1)
    spec, place = registry.usable(PluginKind.LOSS, loss), registry.usable(PluginKind.RUNTIME, runtime)
    if config.run.placement == "colocated":
        return 0, "placement colocated"
    if why := _unweighed(config, spec, loss):
        return 0, why
    if not isinstance(place, RuntimeSpec):
        return 0, f"runtime {runtime} is not known here"
    if not place.several:
        return 0, f"runtime {runtime} is one process"
    if why := _without_transfer(ahead, registry, place):
        return 0, why
    engine = _capabilities(registry, PluginKind.INFERENCE, config.inference.name)
    trainer = _capabilities(registry, PluginKind.TRAINING, training)
    if "delta" in getattr(trainer, "kinds", ()):
        return 0, f"training backend {training} publishes weights of kind delta, and an engine must not miss a version of these"
    far = needed_reach(ahead, place.name, place)[0] == "cluster"
    room, where = (True, "producers may be on other hosts") if far else _room(config, engine, trainer)
    if not room:
        return 0, where
    kind = config.algorithm.mismatch_correction
    return 1, f"{where}; stale data is weighed by {f'the ratio of loss {loss}' if kind == 'none' else f'mismatch_correction {kind}'}"


def _unweighed(config: RunConfig, spec: Any, loss: str) -> str:
    """Return why nothing would weigh stale data, "" if something does."""
    if not isinstance(spec, LossSpec):
        return f"loss {loss} is not known here"
    if config.algorithm.mismatch_correction != "none":
        return ""
    if spec.on_policy is not False:
        return f"loss {loss} {'has no ratio' if spec.on_policy else 'does not declare whether it has a ratio (on_policy)'}"
    if config.sampling.truncates:
        return f"{config.sampling.cut[0]} truncates the sampler, so no ratio weighs stale data"
    return "old_logprobs trainer: no ratio weighs stale data" if config.algorithm.old_logprobs == "trainer" else ""


def _without_transfer(ahead: RunConfig, registry: Registry, runtime: RuntimeSpec) -> str:
    """Return why no weights would leave the trainer's process, "" if some do."""
    name = transfer_name(ahead, runtime.name, registry)[0]
    spec = registry.usable(PluginKind.TRANSFER, name)
    if not isinstance(spec, WeightTransferSpec) and ahead.weights.transport == "auto":
        return "no weight transfer between processes is installed"
    if isinstance(spec, WeightTransferSpec) and spec.unusable:
        return f"transport {name} cannot be used here, because {spec.unusable}"
    leaves = isinstance(spec, WeightTransferSpec) and spec.reach != "process" and (not spec.runtimes or runtime.name in spec.runtimes)
    return "" if leaves else f"transport {name} does not leave the process"


def _room(config: RunConfig, engine: InferenceCapabilities | None, trainer: TrainingCapabilities | None) -> tuple[bool, str]:
    """Return whether a producer computes beside the trainer on this host, and on what."""
    ours = device_of(config.inference.device, engine.devices if engine else None)
    theirs = device_of(config.training.device, trainer.devices if trainer else None)
    if (ours == "cpu") != (theirs == "cpu"):
        return True, f"the producer computes on {ours}, the trainer on {theirs}"
    if ours == "cpu":
        count, trainers = cores(), config.training.num_trainers
        counted = f"{count} cores" if count > 1 else "one core"
        return count > trainers, f"{counted} for {trainers} trainers and a producer" if trainers > 1 else counted
    if ":" in ours and ":" in theirs:
        return ours != theirs, f"the producer computes on {ours}, the trainer on {theirs}"
    if ours.partition(":")[0] == theirs.partition(":")[0] == "cuda":
        count = cuda_devices() or 0
        return count > config.training.num_trainers, f"{count} CUDA device{'s' * (count != 1)} for {config.training.num_trainers + 1} roles"
    return False, "the producer may share the trainer's device"


# --- algorithm.old_logprobs --------------------------------------------------------------------------------------------


def old_logprobs(config: RunConfig, registry: Registry, *, training: str) -> tuple[str, str]:
    """Return ``trainer`` or ``rollout``, and why. Correction and staleness are resolved."""
    if config.schedule.alternating:
        differs, why = engine_differs(config, registry, training)
        if differs:
            return "trainer", why
    if config.algorithm.mismatch_correction != "none":
        return "trainer", "mismatch_correction compares them with the sampler's"
    if config.sampling.truncates:
        return "trainer", "top-p or top-k truncates the sampler, whose log probabilities are not the policy's"
    if config.schedule.alternating and _one_step(config):
        return "trainer", "free with one optimizer step per batch and max_staleness 0"
    if config.schedule.alternating:
        return "rollout", "the sampler's are those of the policy before the first of several optimizer steps"
    return "rollout", "the policy that sampled may be older than the one that trains"


def ratio_is_one(config: RunConfig) -> bool:
    """Return whether the policy is its own old policy in every forward that trains; of a resolved configuration."""
    return config.algorithm.old_logprobs == "trainer" and _one_step(config)


def _one_step(config: RunConfig) -> bool:
    """Return whether a batch makes a single optimizer step."""
    return min(config.algorithm.updates_per_batch, config.training.train_batch_size) * config.algorithm.epochs_per_batch == 1


# --- weights.transport -------------------------------------------------------------------------------------------------

_FARTHER = get_args(Reach)


def transfer_name(config: RunConfig, runtime: str, registry: Registry) -> tuple[str, str]:
    """Return the weight transfer with ``auto`` resolved, and why. If none is installed that fits, it is one to install; ``auto`` stays if
    none is known.

    :param runtime: the resolved name of the runtime. A runtime that is not installed counts as one of several processes.
    """
    if config.weights.transport != "auto":
        return config.weights.transport, ""
    known = registry.spec(PluginKind.RUNTIME, runtime) if registry.has(PluginKind.RUNTIME, runtime) else None
    runtime = known.name if known is not None else runtime.lower()
    reach, why = needed_reach(config, runtime, known)
    ways = _ways(config.inference.name, registry)
    fit = fitting_transfers(registry, runtime, reach, ways)
    if "host" not in ways:
        if not fit and reach == "process" and isinstance(known, RuntimeSpec) and known.several:
            fit, why = fitting_transfers(registry, runtime, "host", ways), "processes of this host"
        why = f"{why}, and {config.inference.name} accepts weights by {' or '.join(sorted(ways))}"
        fit = fit or fitting_transfers(registry, runtime, reach)  # the engine does not take it: a rule refuses it by its name
    return (fit[0].name if fit else known_transfer(reach) or "auto"), why


def in_one_process(config: RunConfig, runtime: RuntimeSpec | None, transfer: Spec | None = None) -> bool:
    """Return whether producer and trainer of a run share a process. ``transfer``: that of its weights. An engine's own transfer that leaves
    the process makes processes."""
    if runtime is None or not runtime.several:
        return runtime is not None
    alone = config.training.num_trainers == config.inference.num_inferencer == 1
    apart = config.training.environment is not None or config.inference.environment is not None
    leaves = isinstance(transfer, WeightTransferSpec) and transfer.way != "host" and transfer.reach != "process"
    return runtime.alternating and alone and not apart and not leaves and config.schedule.alternating


def needed_reach(config: RunConfig, runtime: str, spec: Spec | None) -> tuple[Reach, str]:
    """Return how far apart trainer and producers may be, and why."""
    known = spec if isinstance(spec, RuntimeSpec) else None
    if in_one_process(config, known):
        return "process", "one process"
    if known is not None and known.reach == "host":
        return "host", "producers and trainers are processes of this host"
    joins = known is None or "run.master_address" in known.settings
    if joins and config.run.master_address is None:
        return "host", f"{'an' if runtime[0] in 'aeiou' else 'a'} {runtime.capitalize()} cluster on this host"
    return "cluster", "producers and trainers may be on several hosts"


def _ways(engine: str, registry: Registry) -> Collection[str]:
    """Return how the inference backend takes weights: through the memory of the host if its spec declares nothing."""
    spec = registry.spec(PluginKind.INFERENCE, engine) if registry.has(PluginKind.INFERENCE, engine) else None
    return spec.capabilities.transfers if isinstance(spec, InferenceBackendSpec) and spec.capabilities else ("host",)


def fitting_transfers(registry: Registry, runtime: str, reach: str, ways: Collection[str] = ("host",)) -> list[WeightTransferSpec]:
    """Return every transfer that machine and runtime can use, that reaches as far and goes one of these ways, the one ``auto`` takes first.

    A name that two plugins claim has its place, too: the lookup refuses it later."""
    specs = [spec for spec in registry.specs(PluginKind.TRANSFER, claimed=True) if isinstance(spec, WeightTransferSpec)]
    able = [spec for spec in specs if spec.way in ways and (not spec.runtimes or runtime in spec.runtimes)]
    # In one process a version must be there at once, which nothing that leaves the process promises.
    enough = ("process",) if reach == "process" else _FARTHER[_FARTHER.index(reach) :]
    fit = [spec for spec in able if spec.preference >= 0 and spec.reach in enough and not spec.unusable]
    return sorted(fit, key=lambda spec: (_FARTHER.index(spec.reach), -spec.preference, spec.name))


# --- numbers -----------------------------------------------------------------------------------------------------------


def _rollouts_per_forward(config: RunConfig) -> tuple[int, str]:
    generations, groups = config.sampling.num_generations, int(config.training.train_minibatch_size)
    return groups * generations, f"{groups} group{'s' * (groups > 1)} of {generations}, as far as tokens_per_forward allows"


def _buffer(config: RunConfig) -> tuple[int, str]:
    return (int(config.schedule.max_staleness) + 1) * config.training.train_batch_size, "(max_staleness + 1) x train_batch_size"


def _most_in_flight(config: RunConfig) -> tuple[int, str]:
    least = int(config.inference.inference_batch_size)
    if config.schedule.alternating or config.sampling.environment == "none":
        return least, "inference_batch_size: max_staleness 0" if config.schedule.alternating else "inference_batch_size: no environment"
    return max(least, _buffer(config)[0]), f"{_buffer(config)[1]}: as many as keep the engine busy"


NUMBERS: Mapping[str, Callable[[RunConfig], tuple[Any, str]]] = {
    "inference.inference_batch_size": lambda config: (config.training.train_batch_size, "train_batch_size"),
    "inference.max_in_flight": _most_in_flight,
    "inference.inference_microbatch_size": lambda config: (config.inference.inference_batch_size, "inference_batch_size"),
    "training.train_minibatch_size": lambda config: (config.training.train_batch_size, "train_batch_size"),
    "training.train_microbatch_size": _rollouts_per_forward,
    "algorithm.cache_length": lambda config: (min(1024, config.sampling.max_new_tokens // 4), "min(1024, max_new_tokens / 4)"),
    "schedule.data_actor_buffer_size_limit": _buffer,
    "schedule.reward_workers": lambda config: (max(1, cores() - 1), f"{cores()} cores - 1, at least 1"),
}
"""In this order: a later one may read an earlier one's value."""


def resolve(config: RunConfig, autos: Mapping[str, tuple[Any, str]]) -> tuple[RunConfig, tuple[Resolved, ...]]:
    """Return the configuration with ``autos`` and numbers filled in, and a record of each. A choice that is still "auto" stays."""
    done: list[Resolved] = []
    for path, (value, why) in autos.items():
        if value != "auto":
            done.append(Resolved(path, value, why))
            config = replaced(config, path, value)
    for path, number in NUMBERS.items():
        if get_path(config, path) == "auto":
            done.append(Resolved(path, *number(config)))
            config = replaced(config, path, done[-1].value)
    return config, tuple(done)


# --- declared by plugins -----------------------------------------------------------------------------------------------


def resolve_declared(config: RunConfig, spec: Callable[[str], Any]) -> tuple[RunConfig, tuple[Resolved, ...]]:
    """Fill in what installed plugins declare, if nobody set it: the range of the correction, the deadline of every reward.

    ``spec``: returns the spec of a chosen plugin by the path of the setting that names it, None if it is not installed.
    """
    done: list[Resolved] = []
    correction, kind = spec(CORRECTION), config.algorithm.mismatch_correction
    if config.algorithm.mismatch_range == "auto" and (kind == "none" or correction is not None):
        bounds = correction.usual_range if correction and correction.usual_range else None
        why = (
            f"the usual range of mismatch_correction {kind}: {correction.source}" if bounds else f"mismatch_correction {kind} has no bounds"
        )
        done.append(Resolved("algorithm.mismatch_range", bounds, why))
        config = replaced(config, done[-1].path, bounds)
    for index, entry in enumerate(config.rewards):
        reward = spec(f"rewards.{index}.name")
        if entry.deadline == "auto" and isinstance(reward, RewardSpec):
            done.append(Resolved(f"rewards.{index}.deadline", reward.deadline, f"the deadline that reward {reward.name} declares"))
            config = replaced(config, done[-1].path, reward.deadline)
    return config, tuple(done)
