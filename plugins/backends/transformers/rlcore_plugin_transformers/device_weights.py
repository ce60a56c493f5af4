"""A model's weights on their device: freed while the engine sleeps, allocated by ``wake``, filled bucket by bucket by an update.

Tensors that an update provides are freed. Tensors that it does not provide (tables such as rotary frequencies) move to host memory and
back, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from rlcore.api import Bucket, RunError, Tensor, TensorInfo, WeightsError, WeightsKind, WeightsManifest

__all__ = ["DeviceWeights"]

_CARRIER = {"float32": "float32", "float64": "float64", "float16": "float16", "bfloat16": "uint16"}
# dtype of a record -> dtype of the array that carries it; numpy has no bfloat16.


@dataclass(frozen=True, slots=True)
class _Weight:
    """A parameter or saved buffer of the model, and its shape when the weights are on the device."""

    tensor: torch.Tensor
    shape: torch.Size


class DeviceWeights:
    """The weights of one model on one device. Tensors keep their identity, so that tied weights stay tied.

    >>> residence = DeviceWeights(model, torch.device("cuda"))
    >>> residence.offload(); residence.onload()
    >>> residence.begin(version, manifest); residence.take(bucket); residence.finish()

    Buckets are copied into the served weights. The weights are therefore inconsistent between ``begin`` and the end of ``finish``, and
    after an update that broke off; ``require_weights`` then raises an error.
    """

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        self._model = model
        self._device = device
        self._weights: list[_Weight] = []
        self._here = True
        self._lacking = ""  # why there are no whole weights, as half a sentence; "" if there are
        self._due: dict[str, TensorInfo] = {}
        self._written: dict[int, str] = {}  # id of a tensor that this update has written -> the name under which it came
        for tensor in self._carried() if device.type == "cpu" else ():
            # Weights that are mapped from a file have any address, and kernels of the CPU round by alignment: an engine that slept would
            # differ in the last bit from one that never did. On CUDA the allocator has already aligned them.
            tensor.data = torch.empty_like(tensor.data).copy_(tensor.data)

    def require_weights(self, doing: str) -> None:
        """Raise RunError if there are no whole weights to compute with."""
        self.require_device(doing)
        if self._lacking:
            raise RunError(f"the engine {self._lacking} and cannot {doing}; update its weights first")

    def require_device(self, doing: str) -> None:
        """Raise RunError if the engine sleeps."""
        if not self._here:
            raise RunError(f"the engine sleeps and cannot {doing}; call wake(), then update its weights")

    def begin(self, version: int, manifest: WeightsManifest) -> None:
        """Expect the tensors of a manifest.

        Raises WeightsError, which names the tensor, if they are not the model's; nothing has changed then. Raises RunError if the engine
        sleeps. A tied tensor (``lm_head.weight``) may be sent under one or all of its names; tensors sent under two names must be equal.
        """
        self.require_device("take weights")
        if manifest.kind is not WeightsKind.FULL:
            raise WeightsError(f"version {version} is of kind {manifest.kind}; this backend takes whole weights, kind {WeightsKind.FULL}")
        own = self._model.state_dict()
        sent = {info.name: info for info in manifest.tensors}
        _check_names(own, sent, version)
        for info in manifest.tensors:
            _check_info(info, own[info.name], version)
        self._due, self._written = sent, {}
        self._lacking = f"holds an unfinished version {version} of the weights"

    def take(self, bucket: Bucket) -> None:
        """Copy a bucket's tensors into the model. Raises WeightsError, which names the tensor, if one is not due or differs from its
        announcement."""
        own = self._model.state_dict(keep_vars=True)
        with torch.no_grad():
            for name, tensor in bucket.tensors.items():
                if name not in self._due:
                    raise WeightsError(f"bucket {bucket.index} of version {bucket.version} brings tensor {name!r}, which is not due")
                _check_data(self._due.pop(name), tensor, bucket.version)
                self._write(name, own[name], tensor, bucket.version)

    def _write(self, name: str, own: torch.Tensor, tensor: Tensor, version: int) -> None:
        """Copy the tensor, or compare it if this update has already written the same tensor of the model under another name."""
        other = self._written.setdefault(id(own), name)
        if other == name:
            own.copy_(_as_torch(tensor))
        elif not torch.equal(_bits(_as_torch(tensor).to(own.device, own.dtype)), _bits(own)):
            raise WeightsError(f"version {version}: {other} and {name} are one tensor in the model and were sent unequal")

    def finish(self) -> None:
        """Declare the weights whole. Raises WeightsError, which names the tensor, if one did not come."""
        if self._due:
            raise WeightsError(f"tensor {next(iter(self._due))!r} did not come ({len(self._due)} missing)")
        self._lacking = ""
        self._written = {}

    def offload(self) -> None:
        """Free the memory of every weight: no tensor keeps it, and on CUDA the allocator returns it to the device."""
        if not self._here:
            return
        self._weights = [_Weight(tensor, tensor.shape) for tensor in self._carried()]
        for weight in self._weights:
            weight.tensor.data = weight.tensor.new_empty(0)
        self._move_tables(torch.device("cpu"))
        self._here = False
        self._lacking = "woke without weights"
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def onload(self) -> None:
        """Allocate the weights on the device; their values are undefined until an update has ended."""
        if self._here:
            return
        for weight in self._weights:
            weight.tensor.data = torch.empty(weight.shape, dtype=weight.tensor.dtype, device=self._device)
        self._move_tables(self._device)
        self._weights, self._here = [], True

    def _carried(self) -> list[torch.Tensor]:
        """Return the tensors that an update provides: parameters and saved buffers, tied ones once."""
        return list({id(tensor): tensor for tensor in self._model.state_dict(keep_vars=True).values()}.values())

    def _move_tables(self, device: torch.device) -> None:
        weights = {id(weight.tensor) for weight in self._weights}
        for buffer in self._model.buffers():
            if id(buffer) not in weights:
                buffer.data = buffer.data.to(device)


def _check_names(own: dict[str, torch.Tensor], sent: Mapping[str, TensorInfo], version: int) -> None:
    unknown = sorted(set(sent) - set(own))
    if unknown:
        raise WeightsError(f"version {version}: the model has no tensor {unknown[0]!r} ({len(unknown)} unknown)")
    shared: dict[tuple[int, tuple[int, ...]], list[str]] = {}
    for name, tensor in own.items():
        shared.setdefault((tensor.data_ptr(), tuple(tensor.shape)), []).append(name)
    missing = sorted(names[0] for names in shared.values() if not any(name in sent for name in names))
    if missing:
        raise WeightsError(f"version {version}: tensor {missing[0]!r} of the model was not sent ({len(missing)} missing)")


def _check_info(info: TensorInfo, own: torch.Tensor, version: int) -> None:
    where = f"version {version}: tensor {info.name!r}"
    if tuple(info.shape) != tuple(own.shape):
        raise WeightsError(f"{where} has shape {tuple(info.shape)}, the model's has {tuple(own.shape)}")
    if info.dtype not in _CARRIER:
        raise WeightsError(f"{where} has dtype {info.dtype!r}; this backend takes {', '.join(sorted(_CARRIER))}")


def _check_data(info: TensorInfo, tensor: Tensor, version: int) -> None:
    where = f"version {version}: tensor {info.name!r}"
    if (tensor.dtype, tuple(tensor.shape)) != (info.dtype, tuple(info.shape)):
        raise WeightsError(f"{where} came as {tensor.dtype}{list(tensor.shape)}, but was announced as {info.dtype}{list(info.shape)}")
    if tensor.data.dtype != _CARRIER[tensor.dtype] or tensor.data.size != math.prod(tensor.shape):
        raise WeightsError(
            f"{where} carries {tensor.data.size} values of {tensor.data.dtype}, "
            f"its record says {math.prod(tensor.shape)} of {tensor.dtype}, which is sent as {_CARRIER[tensor.dtype]}"
        )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of the tensor, so that NaN equals itself."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _as_torch(tensor: Tensor) -> torch.Tensor:
    """Return a view of the record's array, or a copy if it is read-only: torch has no read-only tensors and warns."""
    array = np.ascontiguousarray(tensor.data)
    value = torch.from_numpy(array if array.flags.writeable else array.copy())
    return (value.view(torch.bfloat16) if tensor.dtype == "bfloat16" else value).reshape(tensor.shape)
