"""``max_staleness = "auto"``: whether generation runs one version ahead of training; and how far two runs of a plan agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rlcore.config.layers import replaced
from rlcore.config.run_config import RunConfig, SamplingSection
from rlcore.config.transfer_choice import needed_reach, transfer_name
from rlcore.contracts.errors import PluginError
from rlcore.contracts.specs import (
    InferenceCapabilities,
    LossSpec,
    PluginKind,
    Reproducible,
    RuntimeSpec,
    TrainingCapabilities,
    WeightTransferSpec,
)
from rlcore.host.devices import cuda_devices, device_of
from rlcore.host.threads import cores
from rlcore.registry.plugin_registry import Registry

__all__ = ["STALENESS", "Reproducibility", "capabilities", "reproducibility", "staleness_choice", "usable"]

STALENESS = "schedule.max_staleness"


def staleness_choice(config: RunConfig, registry: Registry, *, runtime: str, loss: str, training: str) -> tuple[int, str]:
    """0 or 1, and why: 1 if something weighs stale data and the producer has a core, a device or a node of its own.

    Names are resolved; what is not installed or cannot be used gives 0, and is told where it is looked up."""
    ahead = replaced(config, STALENESS, 1)
    spec, place = usable(registry, PluginKind.LOSS, loss), usable(registry, PluginKind.RUNTIME, runtime)
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
    offered = [capabilities(registry, PluginKind.INFERENCE, config.inference.name), capabilities(registry, PluginKind.TRAINING, training)]
    if "delta" in getattr(offered[1], "kinds", ()):
        return 0, f"training backend {training} hands out weights of kind delta, of which no engine may miss a version"
    far = needed_reach(ahead, place.name, place)[0] == "cluster"
    room, where = (True, "producers may be on other hosts") if far else _room(config, *offered)
    if not room:
        return 0, where
    kind = config.algorithm.mismatch_correction
    return 1, f"{where}; stale data is weighed by {f'the ratio of loss {loss}' if kind == 'none' else f'mismatch_correction {kind}'}"


def _unweighed(config: RunConfig, spec: Any, loss: str) -> str:
    """Why nothing would weigh stale data, "" if something does."""
    if not isinstance(spec, LossSpec):
        return f"loss {loss} is not known here"
    if config.algorithm.mismatch_correction != "none":
        return ""
    if spec.on_policy is not False:
        return f"loss {loss} {'has no ratio' if spec.on_policy else 'does not say whether it has a ratio (on_policy)'}"
    if config.sampling.truncates:
        return f"{config.sampling.cut[0]} truncates the sampler, so no ratio weighs stale data"
    return "old_logprobs trainer: no ratio weighs stale data" if config.algorithm.old_logprobs == "trainer" else ""


def _without_transfer(ahead: RunConfig, registry: Registry, runtime: RuntimeSpec) -> str:
    """Why no weights would leave the trainer's process, "" if some do."""
    name = transfer_name(ahead, runtime.name, registry)[0]
    spec = usable(registry, PluginKind.TRANSFER, name)
    if not isinstance(spec, WeightTransferSpec) and ahead.weights.transport == "auto":
        return "no weight transfer between processes is installed"
    if isinstance(spec, WeightTransferSpec) and spec.unusable:
        return f"transport {name} cannot be used here, for {spec.unusable}"
    leaves = isinstance(spec, WeightTransferSpec) and spec.reach != "process" and (not spec.runtimes or runtime.name in spec.runtimes)
    return "" if leaves else f"transport {name} does not leave the process"


def _room(config: RunConfig, engine: InferenceCapabilities | None, trainer: TrainingCapabilities | None) -> tuple[bool, str]:
    """Whether a producer computes beside the trainer on this host, and on what."""
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


def usable(registry: Registry, kind: PluginKind, name: str) -> Any:
    """The spec, None if nothing, or more than one plugin, offers the name, or if its target is not there."""
    try:
        return None if registry.missing_target(kind, name) else registry.spec(kind, name)
    except PluginError:
        return None


def capabilities(registry: Registry, kind: PluginKind, name: str) -> Any:
    """What a backend declares, None if that is not known."""
    return getattr(usable(registry, kind, name), "capabilities", None)


@dataclass(frozen=True, slots=True)
class Reproducibility:
    """What two runs of a plan have in common, and why; rewards and conversations are taken to answer alike both times."""

    level: Reproducible
    why: str

    def __str__(self) -> str:
        return f"reproducible: {self.level} ({self.why})"


def reproducibility(config: RunConfig, spec: Callable[[str], Any]) -> Reproducibility:
    """Of a resolved configuration; ``spec``: of a chosen plugin, by the path of the setting, None if it is not installed."""
    why = next(_rounding(config, spec), "")
    return Reproducibility("seeded", why) if why else Reproducibility("bitwise", "max_staleness 0, CPU, and both backends are")


def _rounding(config: RunConfig, spec: Callable[[str], Any]) -> Iterator[str]:
    """Why two runs may differ."""
    if int(config.schedule.max_staleness) > 0:
        yield "max_staleness above 0: timing decides which weights sample what"
    if config.sampling.oversampling and config.sampling.conversation != SamplingSection().conversation:
        yield "sampling.oversampling: timing decides which conversations of several turns end first"
    for role, section in (("inference", config.inference), ("training", config.training)):
        found = getattr(spec(f"{role}.name"), "capabilities", None)
        if found is None or found.reproducible != "bitwise":
            yield f"{role} backend {section.name} does not promise more"
        elif isinstance(found, InferenceCapabilities) and not found.counter_noise:
            yield f"the draws of inference backend {section.name} depend on timing"
        elsewhere = config.run.master_address is not None and section.device == "auto" and found is not None and found.devices != {"cpu"}
        device = "auto" if elsewhere else device_of(section.device, found.devices if found else None)
        if device != "cpu":
            yield f"{role} device {device}: {'it may be a GPU, where' if device == 'auto' else 'on it'} sums are rounded in any order"
