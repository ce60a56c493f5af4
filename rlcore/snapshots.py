"""Weights as plain records: a tensor is bytes with a dtype and a shape, a snapshot is one immutable version of all of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlcore.errors import WeightsError

__all__ = ["Probe", "Snapshot", "Tensor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One named weight. ``data`` is a contiguous array; bfloat16, which numpy lacks, travels as uint16 under ``dtype="bfloat16"``."""

    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray

    @property
    def checksum(self) -> int:
        """CRC-32 of dtype, shape and bytes."""
        head = f"{self.dtype}{self.shape}".encode()
        return zlib.crc32(np.ascontiguousarray(self.data).reshape(-1).view(np.uint8).data, zlib.crc32(head))


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A fixed sequence int32[T] and the trainer's log probabilities float32[T-1] of it, to check a receiver against."""

    token_ids: np.ndarray
    logprobs: np.ndarray
    tolerance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One version of the policy, complete: Hugging Face name -> tensor, with the checksum of each taken by the sender."""

    version: int
    tensors: Mapping[str, Tensor]
    checksums: Mapping[str, int]
    probe: Probe | None = None

    @classmethod
    def of(cls, version: int, tensors: Mapping[str, Tensor], probe: Probe | None = None) -> Snapshot:
        """Seal the given tensors under a version."""
        return cls(
            version=version,
            tensors=dict(tensors),
            checksums={name: tensor.checksum for name, tensor in tensors.items()},
            probe=probe,
        )

    def verify(self) -> None:
        """Raise WeightsError, naming the tensor, where anything differs from what the sender sealed."""
        missing = sorted(set(self.checksums) - set(self.tensors))
        if missing:
            raise WeightsError(f"snapshot {self.version} arrived without tensor {missing[0]!r} ({len(missing)} missing)")
        for name, tensor in self.tensors.items():
            if tensor.checksum != self.checksums.get(name):
                raise WeightsError(f"snapshot {self.version} arrived damaged: tensor {name!r} has another checksum than was sent")
