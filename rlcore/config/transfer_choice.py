"""Which weight transfer a run uses: what the runtime, the places of the roles and the installed transfers have in common."""

from __future__ import annotations

from typing import get_args

from rlcore.config.model import RunConfig
from rlcore.contracts.specs import PluginKind, Reach, RuntimeSpec, Spec, WeightTransferSpec
from rlcore.host.catalogue import known_transfer
from rlcore.host.registry import Registry

__all__ = ["fitting_transfers", "in_one_process", "transfer_name"]

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
    reach, why = _needed_reach(config, runtime, known)
    fit = fitting_transfers(registry, runtime, reach)
    return (fit[0].name if fit else known_transfer(reach) or "auto"), why


def in_one_process(config: RunConfig, runtime: RuntimeSpec | None) -> bool:
    """Whether producer and trainer of a run share a process."""
    if runtime is None or not runtime.several:
        return runtime is not None
    alone = config.training.num_trainers == config.inference.num_inferencer == 1
    apart = config.training.environment is not None or config.inference.environment is not None
    return runtime.in_turns and alone and not apart and config.schedule.max_staleness == 0


def _needed_reach(config: RunConfig, runtime: str, spec: Spec | None) -> tuple[Reach, str]:
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


def fitting_transfers(registry: Registry, runtime: str, reach: str) -> list[WeightTransferSpec]:
    """Every transfer that the runtime can use and that reaches as far, the one that ``auto`` takes first.

    One whose name two plugins claim has its place, too: it is refused when it is looked up."""
    specs = [spec for spec in registry.specs(PluginKind.TRANSFER, claimed=True) if isinstance(spec, WeightTransferSpec)]
    fit = [spec for spec in specs if spec.preference >= 0 and _reaches(spec, reach) and (not spec.runtimes or runtime in spec.runtimes)]
    return sorted(fit, key=lambda spec: (_FARTHER.index(spec.reach), -spec.preference, spec.name))


def _reaches(spec: WeightTransferSpec, reach: str) -> bool:
    # In one process a version must be there at once, which nothing that leaves the process promises.
    return spec.reach == reach if reach == "process" else _FARTHER.index(spec.reach) >= _FARTHER.index(reach)
