"""Weights as plain records: a tensor is bytes with a dtype and a shape; a trainer is their source, bucket by bucket; an engine takes them
bucket by bucket; a snapshot is one whole version of them in the memory of a host.

Checksums are XXH3-64 of dtype, shape and bytes: at 30 GB/s on one core they cost less than one copy. They guard against accidents, not
against an enemy.
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
"""Bytes of a bucket, unless somebody says otherwise: a transfer of some tenths of a second, and little beside a model."""

_TOLERANCE = {"float64": 1e-4, "float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}
# Largest difference in nats of one token. fp32 engines agree to 2e-5, bf16 against fp32 was seen to differ by 0.24.


def tensor_hasher(dtype: str, shape: tuple[int, ...]) -> xxhash.xxh3_64:
    """A checksum that has taken dtype and shape in; feed it the bytes, in any cut, then ask for ``intdigest()``."""
    return xxhash.xxh3_64(f"{dtype}{tuple(shape)}".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One named weight. ``data`` is a contiguous array; bfloat16, which numpy lacks, travels as uint16 under ``dtype="bfloat16"``."""

    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray

    @property
    def flat(self) -> np.ndarray:
        """uint8[bytes]: the bytes of ``data``, a view where it is contiguous."""
        return np.ascontiguousarray(self.data).reshape(-1).view(np.uint8)

    def copy_to(self, memory: np.ndarray) -> None:
        """Write its bytes into ``memory`` uint8[bytes]. A backend whose tensors are on a device derives a class that copies from there."""
        memory[:] = self.flat

    def info(self, name: str) -> TensorInfo:
        """What is to be said of it in a manifest."""
        return TensorInfo(name=name, dtype=self.dtype, shape=tuple(self.shape))

    @property
    def checksum(self) -> int:
        """XXH3-64 of dtype, shape and bytes. Lets go of the interpreter's lock while it reads."""
        hasher = tensor_hasher(self.dtype, self.shape)
        hasher.update(self.flat.data)
        return hasher.intdigest()


class WeightsKind(StrEnum):
    """What a version consists of."""

    FULL = "full"
    """Every tensor of the model."""
    ADAPTER = "adapter"
    """The matrices of a LoRA adapter alone, by PEFT's names, over the whole weights that came last, or the engine's own. ``extra``:
    ``config``, the text of PEFT's ``adapter_config.json``, and ``base``, the model by the name that engines are given. A joiner gets the
    newest version alone, so a trainer whose base is another model hands out whole merged weights, each time."""
    DELTA = "delta"
    """What is to be added to each tensor of version ``extra["base"]``; WeightsError from an engine that serves another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """A tensor before its bytes are there: its Hugging Face name, its dtype as torch writes it ("bfloat16"), its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def carrier(self) -> np.dtype[Any]:
        """The numpy dtype that carries it: numpy has no bfloat16 and no float8."""
        if self.dtype == "bfloat16":
            return np.dtype(np.uint16)
        return np.dtype(np.uint8 if self.dtype.startswith("float8") else self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return math.prod(self.shape) * self.carrier.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsManifest:
    """All tensors of a version, in the order in which they travel. ``extra``: what a receiver must know beside them, as text (the
    configuration of an adapter as JSON)."""

    tensors: tuple[TensorInfo, ...]
    kind: WeightsKind = WeightsKind.FULL
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Some tensors of a version, in host memory or on the engine's device. Buckets of a version are numbered from 0 by ``index``.

    ``checksum``: XXH3-64 over the checksums of its tensors, in order, where they travelled through the memory of a host; None where they
    did not. ``info``: what the engine needs if the tensors come by its own transfer, as a picklable mapping; ``tensors`` is empty then, and
    ``epoch`` is that of the group which sends them.
    """

    version: int
    index: int
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    checksum: int | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    epoch: int = -1


class WeightSource(ABC):
    """The trainer's weights as they stand, which leave it bucket by bucket and never as one whole copy.

    Valid until the next update. Collective: every rank calls ``manifest`` and goes through ``buckets`` with the same ``max_bytes``, and the
    bytes of a bucket are complete on rank 0 when it is yielded; other ranks may yield empty ones.
    """

    @abstractmethod
    def manifest(self) -> WeightsManifest:
        """What ``buckets`` will yield, in that order, with Hugging Face names."""

    @abstractmethod
    def buckets(self, max_bytes: int) -> Iterator[Mapping[str, Tensor]]:
        """The tensors, at most ``max_bytes`` of them at a time, or one that is larger. A tensor may be a view of the weights themselves and
        is read before the next bucket is asked for."""


def cut_into_buckets(sizes: Sequence[int], max_bytes: int) -> list[range]:
    """Cut consecutive items of so many bytes each into runs of at most ``max_bytes``, or of one item that is larger."""
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
        """Raise ProbeFailedError where a producer's log probabilities float32[T-1] are not the trainer's."""
        gap = float(np.max(np.abs(served - self.logprobs))) if served.shape == self.logprobs.shape else float("inf")
        if not gap <= self.tolerance:
            raise ProbeFailedError(
                f"producer {producer} does not serve version {version}: its probe log probabilities differ from the trainer's by "
                f"{gap:.3g} nats where {self.tolerance:g} is allowed; check that its backend loaded every tensor"
            )


def probe_tolerance(*dtypes: str) -> float:
    """The tolerance between two computations of these dtypes: that of the coarser one."""
    return max(_TOLERANCE[dtype] for dtype in dtypes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One whole version in the memory of a host: Hugging Face name -> tensor, with the checksum of each taken by the sender. ``kind`` and
    ``extra``: see WeightsManifest."""

    version: int
    tensors: Mapping[str, Tensor]
    checksums: Mapping[str, int]
    probe: Probe | None = None
    kind: WeightsKind = WeightsKind.FULL
    extra: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, version: int, tensors: Mapping[str, Tensor], probe: Probe | None = None) -> Snapshot:
        """Seal the given tensors under a version, here and now: a tensor that is written to later is found damaged."""
        return cls(
            version=version,
            tensors=dict(tensors),
            checksums={name: tensor.checksum for name, tensor in tensors.items()},
            probe=probe,
        )

    def manifest(self) -> WeightsManifest:
        """Its tensors, in order."""
        infos = tuple(tensor.info(name) for name, tensor in self.tensors.items())
        return WeightsManifest(tensors=infos, kind=self.kind, extra=self.extra)

    def buckets(self, max_bytes: int) -> Iterator[Bucket]:
        """Its tensors, at most ``max_bytes`` of them at a time, or one that is larger; views, no copies."""
        names = list(self.tensors)
        for index, places in enumerate(cut_into_buckets([self.tensors[name].data.nbytes for name in names], max_bytes)):
            tensors = {names[place]: self.tensors[names[place]] for place in places}
            seal = xxhash.xxh3_64_intdigest(np.array([self.checksums[name] for name in tensors], np.uint64).tobytes())
            yield Bucket(version=self.version, index=index, tensors=tensors, checksum=seal)

    def verify(self) -> None:
        """Raise WeightsError, naming the tensor, if one has another checksum than its sender sealed."""
        for name, tensor in self.tensors.items():
            compare_checksums(self.version, tensor.info(name), tensor.checksum, self.checksums)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSnapshot(Snapshot):
    """A version whose bytes the engine's own processes take from the trainer's side; this process never has them.

    ``info`` is what ``InferenceBackend.connect`` is told of the group that sends it, ``epoch`` the number of that group, which rises with
    every change of its members. ``parts``: its buckets, without tensors. ``tensors`` and ``checksums`` are empty; all of it is picklable.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    checksums: Mapping[str, int] = field(default_factory=dict)
    infos: tuple[TensorInfo, ...]
    epoch: int
    info: Mapping[str, Any]
    parts: tuple[Bucket, ...]

    def manifest(self) -> WeightsManifest:
        """Its tensors, in order."""
        return WeightsManifest(tensors=self.infos, kind=self.kind, extra=self.extra)

    def buckets(self, max_bytes: int) -> Iterator[Bucket]:
        """``parts``: the trainer's side has cut them."""
        yield from self.parts


def compare_checksums(version: int, tensor: TensorInfo, found: int, sealed: Mapping[str, int]) -> None:
    """Raise WeightsError if ``found``, taken by the receiver, is not what the sender sealed for this tensor."""
    if found != sealed[tensor.name]:
        meant = next((other for other in sealed if sealed[other] == found), None)
        hint = f"carries what was sent as {meant!r}" if meant else f"arrived as {tensor.dtype}{list(tensor.shape)}"
        raise WeightsError(f"snapshot {version} arrived damaged: tensor {tensor.name!r} has another checksum than was sent; it {hint}")
