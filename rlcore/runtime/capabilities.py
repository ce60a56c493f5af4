"""What a backend says it can do, held against what the run asks of it, before anything of it is built."""

from __future__ import annotations

from typing import Any

from rlcore.contracts.errors import ConfigError
from rlcore.contracts.interfaces import InferenceBackend, InferenceCapabilities, InferenceContext, TrainingCapabilities, TrainingContext

__all__ = ["check_inference", "check_sleeps", "check_training", "inference_notes"]


def check_training(target: Any, context: TrainingContext, name: str) -> None:
    """Raise ConfigError for a dtype, device or layout that the backend does not declare."""
    capabilities = getattr(target, "capabilities", None)
    if not isinstance(capabilities, TrainingCapabilities):
        raise ConfigError(f"training backend {name} declares no TrainingCapabilities; its class needs the attribute capabilities")
    _check("training", name, capabilities.dtypes, capabilities.devices, context.dtype, context.device)
    asked = {
        "tensor": ("-tp", context.tensor_parallel > 1),
        "pipeline": ("-pp", context.pipeline_parallel > 1),
        "zero": ("-zero", context.zero_stage > 0),
    }
    for layout, (flag, wanted) in asked.items():
        if wanted and layout not in capabilities.layouts:
            have = ", ".join(sorted(capabilities.layouts))
            raise ConfigError(f"training backend {name} has no layout {layout!r} (it has {have}); leave {flag} at its default")
    replica = context.tensor_parallel * context.pipeline_parallel
    if context.world_size // replica > 1 and "data" not in capabilities.layouts:
        raise ConfigError(
            f"training backend {name} has no layout 'data' (it has {', '.join(sorted(capabilities.layouts))}), and -t {context.world_size} "
            f"asks for {context.world_size // replica} data-parallel ranks; use -t {replica}"
        )


def check_inference(target: Any, context: InferenceContext, name: str) -> None:
    """Raise ConfigError for a dtype or device that the backend does not declare."""
    capabilities = getattr(target, "capabilities", None)
    if not isinstance(capabilities, InferenceCapabilities):
        raise ConfigError(f"inference backend {name} declares no InferenceCapabilities; its class needs the attribute capabilities")
    _check("inference", name, capabilities.dtypes, capabilities.devices, context.dtype, context.device)


def check_sleeps(backend: Any, placement: str, name: str) -> None:
    """ConfigError where ``placement`` is colocated and the inference backend does not give its device back.

    ``backend``: a class or an instance, with ``capabilities``; ``name``: what the user calls it.
    """
    if placement == "colocated" and not backend.capabilities.sleeps:
        raise ConfigError(
            f"placement colocated lets generation and training take turns on one device, and inference backend {name} never gives its "
            "device back (capabilities.sleeps is False); type --placement split, or another --backend"
        )


def inference_notes(engine: InferenceBackend, name: str, *, probe: bool) -> list[str]:
    """What of the run's wishes this engine leaves unfulfilled without harm: one sentence each. ``probe``: whether the run asks for one."""
    if not probe or engine.capabilities.scores:
        return []
    return [f"inference backend {name} cannot score, so what it serves is checked by version and checksum, and not by a probe"]


def _check(section: str, name: str, dtypes: frozenset[str], devices: frozenset[str], dtype: str, device: str) -> None:
    if dtype not in dtypes:
        raise ConfigError(f"--{section}-dtype {dtype} is not served by backend {name}; use {' or '.join(sorted(dtypes))}")
    if device != "auto" and device.partition(":")[0] not in devices:
        raise ConfigError(f"--{section}-device {device} is not served by backend {name}; use auto or {' or '.join(sorted(devices))}")
