"""A version of the weights while it arrives: host copies of its tensors, complete or refused. They lie in memory that has no name in any
file system, so it is gone with the last process that uses it; processes of the engine map it by way of this one's file descriptor."""

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
    """Where a tensor lies in the memory. The dtype is as torch writes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int


class IncomingWeights:
    """Copies tensors out of buckets, whose memory is lent for one call only. Its own memory is freed with it, and with the last tensor.

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
        """Copy its tensors. WeightsError, naming the tensor, for one that is not due or is not what was announced."""
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
        """Every tensor by name, as views of the memory; WeightsError, naming one, if not all came."""
        if self._due:
            raise WeightsError(f"version {self.version}: tensor {next(iter(self._due))!r} did not come ({len(self._due)} missing)")
        return {name: _view(self._memory, place) for name, place in self._places.items()}

    def whole_apart(self) -> dict[str, torch.Tensor]:
        """As ``whole``, for a writer of files that refuses two names of one memory: the second name has a copy."""
        seen, found = set(), {}
        for name, tensor in self.whole().items():
            found[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
            seen.add(tensor.data_ptr())
        return found

    def repeat(self, name: str, other: str) -> None:
        """Have ``name`` stand for the tensor ``other``, too, if it did not come itself."""
        self._places.setdefault(name, self._places[other]._replace(name=name))

    def places(self) -> list[Place]:
        """Where each tensor lies, for a process that maps ``path``."""
        return list(self._places.values())


def mapped(path: str, places: Sequence[Place]) -> dict[str, torch.Tensor]:
    """The tensors in the memory of another process, without a copy. They are private: what is written into them stays here."""
    with Path(path).open("rb") as file:
        memory = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    named = (Place(*place) for place in places)  # some messages carry tuples without their names
    return {place.name: _view(memory, place) for place in named}


def _view(memory: np.ndarray, place: Place) -> torch.Tensor:
    info = TensorInfo(name=place.name, dtype=place.dtype, shape=tuple(place.shape))
    tensor = torch.from_numpy(memory[place.start : place.start + info.nbytes].view(info.carrier).reshape(info.shape))
    return tensor.view(torch.bfloat16) if place.dtype == "bfloat16" else tensor
