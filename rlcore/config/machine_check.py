"""Check before the start whether this machine fits a plan: devices requested by name, folders to create, and Python environments."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from rlcore.config.layers import get_path
from rlcore.config.plan import Plan
from rlcore.config.resolve import needed_reach
from rlcore.contracts.errors import ConfigError
from rlcore.contracts.specs import InferenceBackendSpec, RuntimeSpec, TrainingBackendSpec
from rlcore.host.devices import cuda_devices

__all__ = ["check_machine"]

_FOLDERS = (("run.run_dir", "--run-dir"), ("log.save_dir", "-sd"), ("eval.eval_save_dir", "-esd"), ("log.rollout_save_dir", "-rsd"))


def check_machine(plan: Plan) -> Plan:
    """Return the plan, with a remark on each device that this machine lacks and that other machines of the run may have.

    Raises ConfigError for a device that processes on this machine need, a folder of the run that cannot be made, or an environment of this
    machine in which no process can run. Leaves nothing behind.
    """
    run = plan.config.run
    for path, flag in _FOLDERS:
        if path == "run.run_dir" and plan.resume is not None:
            _check_folder(plan, path, flag, plan.resume.run)  # it may have been moved
        elif folder := get_path(plan.config, path):
            _check_folder(plan, path, flag, Path(folder, run.project if path == "run.run_dir" else ""))
    runtime = plan.registry.spec("runtime", run.runtime) if plan.registry.has("runtime", run.runtime) else None
    if not isinstance(runtime, RuntimeSpec):
        return plan
    remarks = []
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
    return replace(plan, notes=(*plan.notes, *remarks))


def _check_environment(plan: Plan, section: str, environment: Path) -> None:
    """Raise ConfigError if the environment lacks the engine of the backend that runs in it."""
    from rlcore.registry.environments import compatible_python  # here: few runs name an environment

    name = str(get_path(plan.config, f"{section}.name"))
    spec = plan.registry.spec(section, name) if plan.registry.has(section, name) else None
    if isinstance(spec, InferenceBackendSpec | TrainingBackendSpec):
        compatible_python(environment, spec.requires_module.partition(".")[0], spec.install)
    else:
        compatible_python(environment)


def _check_folder(plan: Plan, path: str, flag: str, folder: Path) -> None:
    nearest = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), Path())
    if not nearest.is_dir():
        what = "file" if nearest.exists() else "broken link"
        raise ConfigError(f"{plan.cite(path)}: the folder cannot be created, because {nearest} is a {what}; name another one with {flag}")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(f"{plan.cite(path)}: {nearest} cannot be written; name another folder with {flag}")
    if refusal := _refusal(nearest):
        raise ConfigError(f"{plan.cite(path)}: no folder can be created in {nearest} ({refusal}); name another one with {flag}")


def _refusal(place: Path) -> str:
    """Return why no folder can be made in ``place``, "" if one can.

    In /proc the permissions allow it and the kernel refuses it. Kernel file systems have no blocks, but some network file systems report
    none either; only a trial folder distinguishes them."""
    if os.statvfs(place).f_blocks:
        return ""
    try:
        trial = place / f".rlcore-{os.getpid()}"
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        return str(error.strerror)
    return ""


def _lacking_device(device: str) -> str:
    """Return a clause if this machine certainly lacks the device. Return "" if it has the device, or if only the backend can tell."""
    kind, _, number = device.partition(":")
    count = cuda_devices() if kind == "cuda" else None
    if count is None or (count and not number.isdigit()) or (number.isdigit() and int(number) < count):
        return ""
    return f"this machine has {count} CUDA devices, the last is cuda:{count - 1}" if count else "this machine has no CUDA device"
