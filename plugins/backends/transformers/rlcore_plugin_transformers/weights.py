"""Copies a snapshot into a live model: all of it or nothing."""

from __future__ import annotations

import math

import numpy as np
import torch

from rlcore.api import Snapshot, Tensor, WeightsError

__all__ = ["load_snapshot"]

_CARRIER = {"float32": "float32", "float64": "float64", "float16": "float16", "bfloat16": "uint16"}
# dtype of a record -> dtype of the array that carries it; numpy has no bfloat16.


def load_snapshot(model: torch.nn.Module, snapshot: Snapshot) -> None:
    """Check everything first (checksums, names, shapes, dtypes), then copy in place; WeightsError names the tensor.

    A tied tensor (``lm_head.weight``) may be sent under one of its names or all; what is sent under two names must be equal.
    """
    snapshot.verify()
    own = model.state_dict()
    _check_names(own, snapshot)
    for name, tensor in snapshot.tensors.items():
        _check_tensor(name, tensor, own[name], snapshot.version)
    with torch.no_grad():
        for name, tensor in snapshot.tensors.items():
            own[name].copy_(_as_torch(tensor))


def _check_names(own: dict[str, torch.Tensor], snapshot: Snapshot) -> None:
    unknown = sorted(set(snapshot.tensors) - set(own))
    if unknown:
        raise WeightsError(f"snapshot {snapshot.version}: the model has no tensor {unknown[0]!r} ({len(unknown)} unknown)")
    shared: dict[tuple[int, tuple[int, ...]], list[str]] = {}
    for name, tensor in own.items():
        shared.setdefault((tensor.data_ptr(), tuple(tensor.shape)), []).append(name)
    missing = sorted(names[0] for names in shared.values() if not any(name in snapshot.tensors for name in names))
    if missing:
        raise WeightsError(f"snapshot {snapshot.version}: tensor {missing[0]!r} of the model was not sent ({len(missing)} missing)")
    for names in shared.values():
        if len({snapshot.checksums[name] for name in names if name in snapshot.tensors}) > 1:
            raise WeightsError(f"snapshot {snapshot.version}: {' and '.join(names)} are one tensor in the model and were sent unequal")


def _check_tensor(name: str, tensor: Tensor, own: torch.Tensor, version: int) -> None:
    where = f"snapshot {version}: tensor {name!r}"
    if tuple(tensor.shape) != tuple(own.shape):
        raise WeightsError(f"{where} has shape {tuple(tensor.shape)}, the model's has {tuple(own.shape)}")
    if tensor.dtype not in _CARRIER:
        raise WeightsError(f"{where} has dtype {tensor.dtype!r}; this backend takes {', '.join(sorted(_CARRIER))}")
    if tensor.data.dtype != _CARRIER[tensor.dtype] or tensor.data.size != math.prod(tensor.shape):
        raise WeightsError(
            f"{where} carries {tensor.data.size} values of {tensor.data.dtype}, "
            f"its record says {math.prod(tensor.shape)} of {tensor.dtype}, which travels as {_CARRIER[tensor.dtype]}"
        )


def _as_torch(tensor: Tensor) -> torch.Tensor:
    """A view of the record's array, or a copy where it is read-only: torch has no read-only tensors and warns."""
    array = np.ascontiguousarray(tensor.data)
    value = torch.from_numpy(array if array.flags.writeable else array.copy())
    return (value.view(torch.bfloat16) if tensor.dtype == "bfloat16" else value).reshape(tensor.shape)
