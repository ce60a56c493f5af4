"""A model's weights on their device: freed while the engine sleeps, allocated by ``wake``, filled with a snapshot by ``update``.

What a snapshot carries is dropped; what it does not carry (tables such as rotary frequencies) moves to host memory and back, bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from rlcore.api import RunError, Snapshot, Tensor, WeightsError

__all__ = ["Residence"]

_CARRIER = {"float32": "float32", "float64": "float64", "float16": "float16", "bfloat16": "uint16"}
# dtype of a record -> dtype of the array that carries it; numpy has no bfloat16.


@dataclass(frozen=True, slots=True)
class _Weight:
    """A parameter or saved buffer of the model, and the shape that it has when the weights are here."""

    tensor: torch.Tensor
    shape: torch.Size


class Residence:
    """The weights of one model on one device. Tensors keep their identity, so that tied weights stay tied.

    >>> residence = Residence(model, torch.device("cuda"))
    >>> residence.leave(); residence.come_back(); residence.fill(snapshot)
    """

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        self._model = model
        self._device = device
        self._weights: list[_Weight] = []
        self._here = True
        self._full = True
        for tensor in self._carried() if device.type == "cpu" else ():
            # Weights mapped from a file stand at any address, and kernels of the CPU round by alignment: an engine that
            # slept would differ in the last bit from one that never did. On CUDA the allocator aligned them already.
            tensor.data = torch.empty_like(tensor.data).copy_(tensor.data)

    def require_weights(self, doing: str) -> None:
        """RunError where there are no weights to compute with."""
        self.require_device(doing)
        if not self._full:
            raise RunError(f"the engine woke without weights and cannot {doing}; call update(snapshot) first")

    def require_device(self, doing: str) -> None:
        """RunError where the engine sleeps."""
        if not self._here:
            raise RunError(f"the engine sleeps and cannot {doing}; call wake(), then update(snapshot)")

    def fill(self, snapshot: Snapshot) -> None:
        """Copy a snapshot into the model, all of it or nothing; WeightsError names the tensor. RunError where the engine sleeps.

        A tied tensor (``lm_head.weight``) may be sent under one of its names or all; what is sent under two names must be equal.
        """
        self.require_device("take weights")
        snapshot.verify()
        own = self._model.state_dict()
        _check_names(own, snapshot)
        for name, tensor in snapshot.tensors.items():
            _check_tensor(name, tensor, own[name], snapshot.version)
        with torch.no_grad():
            for name, tensor in snapshot.tensors.items():
                own[name].copy_(_as_torch(tensor))
        self._full = True

    def leave(self) -> None:
        """Free every weight, really: no tensor keeps the memory, and on CUDA the allocator hands it back to the device."""
        if not self._here:
            return
        self._weights = [_Weight(tensor, tensor.shape) for tensor in self._carried()]
        for weight in self._weights:
            weight.tensor.data = weight.tensor.new_empty(0)
        self._move_tables(torch.device("cpu"))
        self._here = self._full = False
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def come_back(self) -> None:
        """Allocate the weights on the device; their values are undefined until a snapshot is written."""
        if self._here:
            return
        for weight in self._weights:
            weight.tensor.data = torch.empty(weight.shape, dtype=weight.tensor.dtype, device=self._device)
        self._move_tables(self._device)
        self._weights, self._here = [], True

    def _carried(self) -> list[torch.Tensor]:
        """Parameters and saved buffers, tied ones once: what a snapshot brings."""
        return list({id(tensor): tensor for tensor in self._model.state_dict(keep_vars=True).values()}.values())

    def _move_tables(self, device: torch.device) -> None:
        weights = {id(weight.tensor) for weight in self._weights}
        for buffer in self._model.buffers():
            if id(buffer) not in weights:
                buffer.data = buffer.data.to(device)


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
