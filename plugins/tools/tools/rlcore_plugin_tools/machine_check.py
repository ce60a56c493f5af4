"""Check before the start whether this machine has the devices and the Python environments that a plan names."""

from __future__ import annotations

from pathlib import Path

from rlcore_plugin_workers.python_check import compatible_python

from rlcore.api import ConfigError, InferenceBackendSpec, RuntimeSpec, TrainingBackendSpec
from rlcore.api.commands import Plan
from rlcore.api.runtime import cuda_devices
from rlcore.api.settings import get_path, needed_reach

__all__ = ["check_machine"]


def check_machine(plan: Plan) -> list[str]:
    """Return a remark on each device that this machine lacks and that other machines of the run may have.

    Raises ConfigError for a device that processes on this machine need, or an environment of this machine in which no process can run.
    """
    run = plan.config.run
    runtime = plan.registry.spec("runtime", run.runtime) if plan.registry.has("runtime", run.runtime) else None
    remarks: list[str] = []
    if not isinstance(runtime, RuntimeSpec):
        return remarks
    for section, role in (("inference", "producers"), ("training", "trainers")):
        if lacking := _lacking_device(str(get_path(plan.config, f"{section}.device"))):
            said = f"{plan.cite(f'{section}.device')}: {lacking}"
            if runtime.reach != "cluster":
                raise ConfigError(f"{said}; type --{section}-device auto or cpu")
            remarks.append(f"{said}, so the {role} must run on other machines")
        environment = get_path(plan.config, f"{section}.environment")
        if environment and needed_reach(plan.config, runtime.name, runtime)[0] != "cluster":
            try:
                _check_environment(plan, section, Path(environment))
            except ConfigError as error:
                raise ConfigError(f"{plan.cite(f'{section}.environment')}: {error}") from error
    return remarks


def _check_environment(plan: Plan, section: str, environment: Path) -> None:
    """Raise ConfigError if the environment lacks the engine of the backend that runs in it."""
    name = str(get_path(plan.config, f"{section}.name"))
    spec = plan.registry.spec(section, name) if plan.registry.has(section, name) else None
    if isinstance(spec, InferenceBackendSpec | TrainingBackendSpec):
        compatible_python(environment, spec.requires_module.partition(".")[0], spec.install)
    else:
        compatible_python(environment)


def _lacking_device(device: str) -> str:
    """Return a clause if this machine certainly lacks the device. Return "" if it has the device, or if only the backend can tell."""
    kind, _, number = device.partition(":")
    count = cuda_devices() if kind == "cuda" else None
    if count is None or (count and not number.isdigit()) or (number.isdigit() and int(number) < count):
        return ""
    return f"this machine has {count} CUDA devices, the last is cuda:{count - 1}" if count else "this machine has no CUDA device"
