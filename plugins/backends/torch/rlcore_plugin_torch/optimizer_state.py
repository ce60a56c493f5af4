"""The state of a chosen optimizer in a checkpoint: numbers and descriptions in the small file, tensors in the shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rlcore.api import PluginError
from rlcore_plugin_torch.sharding import local

__all__ = ["described", "made_again", "tensors_of"]

States = Mapping[str, Mapping[str, Any]]
"""Name of a parameter -> its entry in ``torch.optim.Optimizer.state``."""


def tensors_of(states: States) -> dict[str, torch.Tensor]:
    """Return the tensors that have axes, as ``KEY.NAME``."""
    return {f"{key}.{name}": value for name, state in states.items() for key, value in state.items() if _has_axes(value)}


def described(states: States, named: Mapping[str, torch.nn.Parameter]) -> dict[str, dict[str, Any]]:
    """Return what ``made_again`` needs, in types that torch loads without running code. Raises PluginError for state of another type."""
    return {name: {key: _described(key, value, named[name]) for key, value in state.items()} for name, state in states.items()}


def _described(key: str, value: Any, parameter: torch.nn.Parameter) -> dict[str, Any]:
    if _has_axes(value):
        alike = value.shape == parameter.shape
        return {"shape": None if alike else list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, torch.Tensor):
        return {"number": value.detach().cpu().clone(), "in_host_memory": value.device.type == "cpu"}
    if not isinstance(value, int | float | str | None):
        raise PluginError(
            f"the optimizer's state {key!r} is a {type(value).__name__}, which a checkpoint does not hold; use tensors, numbers and texts"
        )
    return {"plain": value}


def made_again(entry: Mapping[str, Any], parameter: torch.nn.Parameter) -> Any:
    """Return the value of an entry of ``described``; a tensor with axes is allocated, divided like its parameter, and not filled."""
    device = local(parameter).device
    if "plain" in entry:
        return entry["plain"]
    if "number" in entry:
        return entry["number"].clone() if entry["in_host_memory"] else entry["number"].to(device, copy=True)
    dtype = getattr(torch, entry["dtype"])
    if entry["shape"] is None:
        return torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
    return torch.zeros(entry["shape"], dtype=dtype, device=device)


def _has_axes(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0
