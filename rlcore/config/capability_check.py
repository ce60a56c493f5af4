"""What a run asks of its backends, held against what they declare: by their specs before the run, by the class where one is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from rlcore.config.layers import get_path
from rlcore.config.model import Dtype, RunConfig
from rlcore.contracts.specs import InferenceCapabilities, TrainingCapabilities

__all__ = ["unoffered"]

_Capabilities = InferenceCapabilities | TrainingCapabilities
_LAYOUTS = (
    ("inference.producer_tensor_parallel_size", "tensor", "-ptp", 1),
    ("training.tensor_parallel_size", "tensor", "-tp", 1),
    ("training.pipeline_parallel_size", "pipeline", "-pp", 1),
    ("training.zero_stage", "zero", "-zero", 0),
)
"""A setting, the layout that values above the last column ask for, and its flag."""


def unoffered(offered: _Capabilities, name: str, config: RunConfig, cite: Callable[[str], str]) -> str | None:
    """A sentence on the first thing that the run asks of the backend ``name`` in vain. ``cite``: a setting, by its path, and its value as
    the user knows them."""
    kind = "training" if isinstance(offered, TrainingCapabilities) else "inference"
    backend, layouts = f"{kind} backend {name}", f"(it offers {', '.join(sorted(offered.layouts))})"
    for key, choices in (("dtype", offered.dtypes.intersection(get_args(Dtype))), ("device", offered.devices | {"auto"})):
        if get_path(config, f"{kind}.{key}").partition(":")[0] not in choices:
            advice = f"type --{kind}-{key} {' or '.join(sorted(choices))}" if choices else "name another backend"
            return f"{cite(f'{kind}.{key}')}: {backend} does not offer it; {advice}"
    for path, layout, flag, most in _LAYOUTS:
        if path.startswith(kind) and get_path(config, path) > most and layout not in offered.layouts:
            return f"{cite(path)}: {backend} does not offer the layout {layout} {layouts}; type {flag} {most}"
    if isinstance(offered, InferenceCapabilities) and config.run.placement == "colocated" and not offered.sleeps:
        return (
            f"{cite('run.placement')} lets generation and training take turns on one device, and {backend} never gives its device back "
            "(capabilities.sleeps is False); type --placement split, or name another --backend"
        )
    ranks = config.training.data_parallel_size
    if kind == "inference" or ranks == 1 or "data" in offered.layouts:
        return None
    return (
        f"{cite('training.num_trainers')} asks for {ranks} data-parallel ranks, and {backend} does not offer the layout data {layouts}; "
        f"type -t {config.training.num_trainers // ranks}"
    )
