"""Weights as plain records.

A tensor is bytes with a dtype and a shape. A trainer is a source of tensors, bucket by bucket, and an engine receives them bucket by
bucket. A snapshot is one complete version in host memory.

Checksums are XXH3-64 of dtype, shape and bytes. At 30 GB/s on one core they cost less than one copy. They protect against accidents, not
against attackers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np
import xxhash

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.public_members import EnumMembers, PublicMembers

__all__ = [
    "BUCKET_BYTES",
    "Bucket",
    "Probe",
    "ProbeFailedError",
    "RemoteSnapshot",
    "Snapshot",
    "Tensor",
    "TensorInfo",
    "WeightSource",
    "WeightsKind",
    "WeightsManifest",
    "compare_checksums",
    "cut_into_buckets",
    "probe_tolerance",
    "tensor_hasher",
]

BUCKET_BYTES = 256 << 20
"""Default size of a bucket in bytes: some tenths of a second of transfer, and little memory compared with a model."""

_TOLERANCE = {"float64": 1e-4, "float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}
# # Largest difference in nats of one token. fp32 engines agree to 2e-5; a difference of 0.24 was observed between bf16 and fp32.


def tensor_hasher(dtype: str, shape: tuple[int, ...]) -> xxhash.xxh3_64:
    """Return a checksum that already covers dtype and shape. Feed it the bytes, in pieces of any size, then call ``intdigest()``."""
    return xxhash.xxh3_64(f"{dtype}{tuple(shape)}".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor(metaclass=PublicMembers):
    """One named weight.

    ``data`` is a contiguous array. numpy lacks bfloat16, so bfloat16 data is uint16 with ``dtype="bfloat16"``.
    """

    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray

    @property
    def flat(self) -> np.ndarray:
        """uint8[bytes]: the bytes of ``data``, a view if ``data`` is contiguous."""
        return np.ascontiguousarray(self.data).reshape(-1).view(np.uint8)

    def copy_to(self, memory: np.ndarray) -> None:
        """Write the bytes into ``memory`` uint8[bytes].

        A backend whose tensors are on a device derives a class that copies from the device.
        """
        memory[:] = self.flat

    def info(self, name: str) -> TensorInfo:
        """Return the tensor's entry for a manifest."""
        return TensorInfo(name=name, dtype=self.dtype, shape=tuple(self.shape))

    @property
    def checksum(self) -> int:
        """XXH3-64 of dtype, shape and bytes. Releases the interpreter's lock while it reads."""
        hasher = tensor_hasher(self.dtype, self.shape)
        hasher.update(self.flat.data)
        return hasher.intdigest()


class WeightsKind(StrEnum, metaclass=EnumMembers):
    """The content of a version."""

    FULL = "full"
    """Every tensor of the model."""
    ADAPTER = "adapter"
    """Only the matrices of a LoRA adapter, by PEFT's names. They apply on top of the last whole weights, or of the engine's own.

    ``extra`` has ``config``, the text of PEFT's ``adapter_config.json``, and ``base``, the name of the model as engines receive it. A new
    engine receives only the newest version, so a trainer with another base model publishes whole merged weights each time.
    """
    DELTA = "delta"
    """The differences to add to the tensors of version ``extra["base"]``. An engine that serves another version raises WeightsError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo(metaclass=PublicMembers):
    """A tensor without its bytes: its Hugging Face name, its dtype as torch writes it ("bfloat16"), its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def carrier(self) -> np.dtype[Any]:
        """The numpy dtype that carries the tensor: numpy has no bfloat16 and no float8."""
        if self.dtype == "bfloat16":
            return np.dtype(np.uint16)
        return np.dtype(np.uint8 if self.dtype.startswith("float8") else self.dtype)

    @property
    def nbytes(self) -> int:
        """Size of the tensor in bytes."""
        return math.prod(self.shape) * self.carrier.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsManifest(metaclass=PublicMembers):
    """All tensors of a version, in the order of transfer.

    ``extra``: further facts for the receiver, as text (the configuration of an adapter as JSON).
    """

    tensors: tuple[TensorInfo, ...]
    kind: WeightsKind = WeightsKind.FULL
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket(metaclass=PublicMembers):
    """Some tensors of a version, in host memory or on the engine's device. ``index`` numbers the buckets of a version from 0.

    ``checksum``: XXH3-64 over the checksums of its tensors, in order, if they travelled through host memory; otherwise None.
    ``info``: a picklable mapping for the engine, if the tensors come by an engine transfer. ``tensors`` is empty then.
    ``epoch``: the epoch of the group that sends the tensors in an engine transfer.
    """

    version: int
    index: int
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    checksum: int | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    epoch: int = -1


class WeightSource(ABC):
    """The current weights of the trainer. They leave it bucket by bucket, never as one whole copy.

    Valid until the next update. Collective: every rank calls ``manifest`` and iterates over ``buckets`` with the same ``max_bytes``. The
    bytes of a bucket are complete on rank 0 when it is yielded; other ranks may yield empty buckets.
    """

    @abstractmethod
    def manifest(self) -> WeightsManifest:
        """Return the tensors that ``buckets`` will yield, in that order, with Hugging Face names."""

    @abstractmethod
    def buckets(self, max_bytes: int) -> Iterator[Mapping[str, Tensor]]:
        """Yield the tensors in buckets of at most ``max_bytes``, or of one tensor that is larger.

        A tensor may be a view of the weights themselves. The caller reads it before it asks for the next bucket.
        """


def cut_into_buckets(sizes: Sequence[int], max_bytes: int) -> list[range]:
    """Divide consecutive items of the given sizes in bytes into ranges of at most ``max_bytes``, or of one item that is larger."""
    starts, held = [0], 0
    for place, size in enumerate(sizes):
        if place > starts[-1] and held + size > max_bytes:
            starts.append(place)
            held = 0
        held += size
    return [range(start, stop) for start, stop in pairwise([*starts, len(sizes)]) if stop > start]


class ProbeFailedError(WeightsError):
    """A producer computes other log probabilities than the trainer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A fixed sequence int32[T] and the trainer's log probabilities float32[T-1] of it, to check a receiver against."""

    token_ids: np.ndarray
    logprobs: np.ndarray
    tolerance: float

    def check(self, served: np.ndarray, *, version: int, producer: str) -> None:
        """Raise ProbeFailedError if a producer's log probabilities float32[T-1] differ from the trainer's by more than the tolerance."""
        gap = float(np.max(np.abs(served - self.logprobs))) if served.shape == self.logprobs.shape else float("inf")
        if not gap <= self.tolerance:
            raise ProbeFailedError(
                f"producer {producer} does not serve version {version}: its probe log probabilities differ from the trainer's by "
                f"{gap:.3g} nats, and {self.tolerance:g} is allowed; check that its backend loaded every tensor"
            )


def probe_tolerance(*dtypes: str) -> float:
    """Return the tolerance between computations in these dtypes: that of the coarsest one."""
    return max(_TOLERANCE[dtype] for dtype in dtypes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(metaclass=PublicMembers):
    """One complete version in host memory.

    ``tensors``: Hugging Face name -> tensor. ``checksums``: the checksum that the sender computed for each. ``kind`` and ``extra``: see
    WeightsManifest.
    """

    version: int
    tensors: Mapping[str, Tensor]
    checksums: Mapping[str, int]
    probe: Probe | None = None
    kind: WeightsKind = WeightsKind.FULL
    extra: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, version: int, tensors: Mapping[str, Tensor], probe: Probe | None = None) -> Snapshot:
        """Return a snapshot of the given tensors, sealed now: ``verify`` reports a tensor that is changed later as damaged."""
        return cls(
            version=version, tensors=dict(tensors), checksums={name: tensor.checksum for name, tensor in tensors.items()}, probe=probe
        )

    def manifest(self) -> WeightsManifest:
        """Return the manifest of its tensors, in order."""
        infos = tuple(tensor.info(name) for name, tensor in self.tensors.items())
        return WeightsManifest(tensors=infos, kind=self.kind, extra=self.extra)

    def buckets(self, max_bytes: int) -> Iterator[Bucket]:
        """Yield its tensors in buckets of at most ``max_bytes``, or of one tensor that is larger. The arrays are views, not copies."""
        names = list(self.tensors)
        for index, places in enumerate(cut_into_buckets([self.tensors[name].data.nbytes for name in names], max_bytes)):
            tensors = {names[place]: self.tensors[names[place]] for place in places}
            seal = xxhash.xxh3_64_intdigest(np.array([self.checksums[name] for name in tensors], np.uint64).tobytes())
            yield Bucket(version=self.version, index=index, tensors=tensors, checksum=seal)

    def verify(self) -> None:
        """Raise WeightsError, naming the tensor, if the checksum of a tensor differs from the one that its sender computed."""
        for name, tensor in self.tensors.items():
            compare_checksums(self.version, tensor.info(name), tensor.checksum, self.checksums)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSnapshot(Snapshot):
    """A version whose bytes the engine's own processes fetch from the trainer's side. This process never holds them.

    ``info``: the argument of ``InferenceBackend.connect`` for the group that sends it.
    ``epoch``: the number of that group, which rises with every change of its members.
    ``parts``: its buckets, without tensors.

    ``tensors`` and ``checksums`` are empty. Everything is picklable.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    checksums: Mapping[str, int] = field(default_factory=dict)
    infos: tuple[TensorInfo, ...]
    epoch: int
    info: Mapping[str, Any]
    parts: tuple[Bucket, ...]

    def manifest(self) -> WeightsManifest:
        """Return the manifest of its tensors, in order."""
        return WeightsManifest(tensors=self.infos, kind=self.kind, extra=self.extra)

    def buckets(self, max_bytes: int) -> Iterator[Bucket]:
        """Yield ``parts``; the trainer's side has divided them already."""
        yield from self.parts


def compare_checksums(version: int, tensor: TensorInfo, found: int, sealed: Mapping[str, int]) -> None:
    """Raise WeightsError if ``found``, computed by the receiver, differs from the checksum that the sender computed for this tensor."""
    if found != sealed[tensor.name]:
        meant = next((other for other in sealed if sealed[other] == found), None)
        hint = f"carries the data that was sent as {meant!r}" if meant else f"arrived as {tensor.dtype}{list(tensor.shape)}"
        raise WeightsError(
            f"snapshot {version} arrived damaged: tensor {tensor.name!r} does not have the checksum that was sent; it {hint}"
        )
