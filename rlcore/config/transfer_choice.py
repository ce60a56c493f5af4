"""Which weight transfer a run uses: what the runtime, the places of the roles and the installed transfers have in common."""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

from rlcore.config.run_config import RunConfig
from rlcore.contracts.specs import InferenceBackendSpec, PluginKind, Reach, RuntimeSpec, Spec, WeightTransferSpec
from rlcore.registry.known_plugins import known_transfer
from rlcore.registry.plugin_registry import Registry

__all__ = ["fitting_transfers", "in_one_process", "needed_reach", "transfer_name"]

_FARTHER = get_args(Reach)


def transfer_name(config: RunConfig, runtime: str, registry: Registry) -> tuple[str, str]:
    """The weight transfer with ``auto`` resolved, and why. If none is installed that fits, one to install;
    ``auto`` stays if none is known.

    :param runtime: the name of the runtime, resolved; one that is not installed counts as one of several processes.
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
        why = f"{why}, and {config.inference.name} takes weights by {' or '.join(sorted(ways))}"
        fit = fit or fitting_transfers(registry, runtime, reach)  # which the engine does not take: it is refused, and named
    return (fit[0].name if fit else known_transfer(reach) or "auto"), why


def in_one_process(config: RunConfig, runtime: RuntimeSpec | None, transfer: Spec | None = None) -> bool:
    """Whether producer and trainer of a run share a process. ``transfer``: that of its weights; one of engines' own that leaves the process
    makes processes."""
    if runtime is None or not runtime.several:
        return runtime is not None
    alone = config.training.num_trainers == config.inference.num_inferencer == 1
    apart = config.training.environment is not None or config.inference.environment is not None
    leaves = isinstance(transfer, WeightTransferSpec) and transfer.way != "host" and transfer.reach != "process"
    return runtime.alternating and alone and not apart and not leaves and config.schedule.max_staleness == 0


def needed_reach(config: RunConfig, runtime: str, spec: Spec | None) -> tuple[Reach, str]:
    """How far apart trainer and producers may be, and why."""
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
    """How the inference backend takes weights; one that says nothing before it is imported, through the memory of the host."""
    spec = registry.spec(PluginKind.INFERENCE, engine) if registry.has(PluginKind.INFERENCE, engine) else None
    return spec.capabilities.transfers if isinstance(spec, InferenceBackendSpec) and spec.capabilities else ("host",)


def fitting_transfers(registry: Registry, runtime: str, reach: str, ways: Collection[str] = ("host",)) -> list[WeightTransferSpec]:
    """Every transfer that machine and runtime can use, that reaches as far and goes one of these ways, the one ``auto`` takes first.

    One whose name two plugins claim has its place, too: it is refused when it is looked up."""
    specs = [spec for spec in registry.specs(PluginKind.TRANSFER, claimed=True) if isinstance(spec, WeightTransferSpec)]
    able = [spec for spec in specs if spec.way in ways and (not spec.runtimes or runtime in spec.runtimes)]
    # In one process a version must be there at once, which nothing that leaves the process promises.
    enough = ("process",) if reach == "process" else _FARTHER[_FARTHER.index(reach) :]
    fit = [spec for spec in able if spec.preference >= 0 and spec.reach in enough and not spec.unusable]
    return sorted(fit, key=lambda spec: (_FARTHER.index(spec.reach), -spec.preference, spec.name))
