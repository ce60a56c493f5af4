"""A version of the weights while it arrives: host copies of its tensors, either complete or refused. They are in memory without a name
in any file system, so it is freed with the last process that uses it. Processes of the engine map it through this process's file
descriptor."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from rlcore.api import Bucket, TensorInfo, WeightsError, WeightsManifest

__all__ = ["IncomingWeights", "Place", "mapped"]

_ALIGNED = 64


class Place(NamedTuple):
    """The place of a tensor in the memory. The dtype is as torch writes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int


class IncomingWeights:
    """Copies of tensors from buckets, whose memory is valid for one call only.

    The memory of the copies is freed with this object and the last tensor.

    >>> incoming = IncomingWeights(3, manifest)
    >>> incoming.take(bucket)
    >>> tensors = incoming.whole()
    """

    def __init__(self, version: int, manifest: WeightsManifest) -> None:
        self.version, self.manifest = version, manifest
        self._due: dict[str, TensorInfo] = {info.name: info for info in manifest.tensors}
        self._places: dict[str, Place] = {}
        size = 0
        for info in manifest.tensors:
            self._places[info.name] = Place(info.name, info.dtype, tuple(info.shape), size)
            size += -(-info.nbytes // _ALIGNED) * _ALIGNED
        file = os.memfd_create("rlcore-weights")
        weakref.finalize(self, os.close, file)
        os.ftruncate(file, max(size, 1))
        self.path = f"/proc/{os.getpid()}/fd/{file}"
        self._memory = np.frombuffer(mmap.mmap(file, max(size, 1)), np.uint8)

    def take(self, bucket: Bucket) -> None:
        """Copy the tensors of a bucket. Raises WeightsError, which names the tensor, if one is not due or differs from its announcement."""
        for name, tensor in bucket.tensors.items():
            if name not in self._due:
                raise WeightsError(f"bucket {bucket.index} of version {bucket.version} brings tensor {name!r}, which is not due")
            announced = self._due.pop(name)
            if (tensor.dtype, tuple(tensor.shape)) != (announced.dtype, tuple(announced.shape)):
                raise WeightsError(
                    f"version {self.version}: tensor {name!r} came as {tensor.dtype} {list(tensor.shape)} and was announced as "
                    f"{announced.dtype} {list(announced.shape)}"
                )
            start = self._places[name].start
            tensor.copy_to(self._memory[start : start + announced.nbytes])

    def whole(self) -> dict[str, torch.Tensor]:
        """Return every tensor by name, as views of the memory. Raises WeightsError, which names one, if not all came."""
        if self._due:
            raise WeightsError(f"version {self.version}: tensor {next(iter(self._due))!r} did not come ({len(self._due)} missing)")
        return {name: _view(self._memory, place) for name, place in self._places.items()}

    def whole_apart(self) -> dict[str, torch.Tensor]:
        """Return the same as ``whole``, for a file writer that refuses two names for one memory: the second name has a copy."""
        seen, found = set(), {}
        for name, tensor in self.whole().items():
            found[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
            seen.add(tensor.data_ptr())
        return found

    def repeat(self, name: str, other: str) -> None:
        """Let ``name`` also refer to the tensor ``other``, if it did not come itself."""
        self._places.setdefault(name, self._places[other]._replace(name=name))

    def places(self) -> list[Place]:
        """Return the place of each tensor, for a process that maps ``path``."""
        return list(self._places.values())


def mapped(path: str, places: Sequence[Place]) -> dict[str, torch.Tensor]:
    """Return the tensors in the memory of another process, without a copy. They are private: writes to them stay in this process."""
    with Path(path).open("rb") as file:
        memory = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    named = (Place(*place) for place in places)  # some messages carry tuples without field names
    return {place.name: _view(memory, place) for place in named}


def _view(memory: np.ndarray, place: Place) -> torch.Tensor:
    info = TensorInfo(name=place.name, dtype=place.dtype, shape=tuple(place.shape))
    tensor = torch.from_numpy(memory[place.start : place.start + info.nbytes].view(info.carrier).reshape(info.shape))
    return tensor.view(torch.bfloat16) if place.dtype == "bfloat16" else tensor
