"""The layout of one version of the weights in host memory, and how it is filled, sealed, verified and read.

Every transfer through host memory uses it, so that damage, dtypes and probes are handled in the same way. It does not know how bytes are
sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import (
    Probe,
    Snapshot,
    Tensor,
    TensorInfo,
    WeightsKind,
    WeightsManifest,
    WeightSource,
    compare_checksums,
    cut_into_buckets,
    tensor_hasher,
)

__all__ = ["HostLayout"]

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLayout:
    """Tensors in sequence, each aligned to 64 bytes. Tensor ``i`` begins at byte ``offsets[i]``; ``size`` is the total in bytes."""

    version: int
    manifest: WeightsManifest
    probe: Probe | None
    offsets: tuple[int, ...] = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        offsets, size = [], 0
        for tensor in self.manifest.tensors:
            offsets.append(size)
            size += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
        object.__setattr__(self, "offsets", tuple(offsets))
        object.__setattr__(self, "size", size)

    def to_bytes(self) -> bytes:
        """Return the layout as JSON in UTF-8."""
        tensors = [[tensor.name, tensor.dtype, tensor.shape] for tensor in self.manifest.tensors]
        fields = {"version": self.version, "tensors": tensors, "kind": self.manifest.kind, "extra": dict(self.manifest.extra)}
        return json.dumps({**fields, "probe": _plain(self.probe)}).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> HostLayout:
        """Return the layout that ``to_bytes`` wrote. Raises WeightsError for any other input."""
        try:
            fields = json.loads(text)
            infos = tuple(TensorInfo(name=name, dtype=dtype, shape=tuple(shape)) for name, dtype, shape in fields["tensors"])
            manifest = WeightsManifest(tensors=infos, kind=WeightsKind(fields["kind"]), extra=fields["extra"])
            return cls(version=fields["version"], manifest=manifest, probe=_probe(fields["probe"]))
        except (ValueError, KeyError, TypeError) as error:
            raise WeightsError(f"the list of tensors of a version arrived damaged: {error}") from error

    def fill(self, source: WeightSource, memory: np.ndarray, bucket_bytes: int) -> None:
        """Copy every tensor of the source into ``memory`` uint8[at least size]. Raises WeightsError for a tensor that differs from its
        manifest."""
        places = {tensor.name: place for place, tensor in enumerate(self.manifest.tensors)}
        for bucket in source.buckets(bucket_bytes):
            for name, tensor in bucket.items():
                place = places.pop(name, None)
                if place is None:
                    raise self._wrong(name, "was published twice, or is not in its manifest")
                info = self.manifest.tensors[place]
                if (tensor.dtype, tuple(tensor.shape)) != (info.dtype, info.shape):
                    raise self._wrong(name, f"is {tensor.dtype}{list(tensor.shape)}, its manifest says {info.dtype}{list(info.shape)}")
                tensor.copy_to(self._bytes(memory, place))
        if places:
            raise self._wrong(next(iter(places)), f"is in its manifest and was not published ({len(places)} missing)")

    def buckets(self, bucket_bytes: int) -> list[range]:
        """Return runs of tensors of at most ``bucket_bytes``, or of one larger tensor. Each run is sealed and verified at once."""
        return cut_into_buckets([tensor.nbytes for tensor in self.manifest.tensors], bucket_bytes)

    def seal(self, memory: np.ndarray, places: Sequence[int]) -> np.ndarray:
        """Return uint64[places]: the checksums of these tensors as they are in ``memory``, for the sender."""
        return self._checksums(memory, places)

    def _checksums(self, memory: np.ndarray, places: Sequence[int]) -> np.ndarray:
        checksums = []
        for place in places:
            info = self.manifest.tensors[place]
            hasher = tensor_hasher(info.dtype, info.shape)
            hasher.update(self._bytes(memory, place).data)
            checksums.append(hasher.intdigest())
        return np.array(checksums, np.uint64)

    def verify(self, memory: np.ndarray, places: Sequence[int], sealed: np.ndarray) -> None:
        """Raise WeightsError with the tensor's name if these tensors have other checksums than the sender's, uint64[places]."""
        infos = [self.manifest.tensors[place] for place in places]
        meant = dict(zip((info.name for info in infos), sealed.tolist(), strict=True))
        for info, found in zip(infos, self._checksums(memory, places).tolist(), strict=True):
            compare_checksums(self.version, info, found, meant)

    def verified(self, memory: np.ndarray, checksums: np.ndarray) -> Snapshot:
        """Return the complete version as read-only views of ``memory``.

        Raises WeightsError with the tensor's name if its bytes do not match their checksum in uint64[tensors]."""
        self.verify(memory, range(len(self.offsets)), checksums)
        names = [tensor.name for tensor in self.manifest.tensors]
        return self.snapshot(memory, dict(zip(names, checksums.tolist(), strict=True)))

    def snapshot(self, memory: np.ndarray, checksums: Mapping[str, int]) -> Snapshot:
        """Return the tensors as read-only views of ``memory``, without verifying them."""
        tensors = {}
        for place, info in enumerate(self.manifest.tensors):
            data = self._bytes(memory, place).view(info.carrier).reshape(info.shape)
            data.flags.writeable = False
            tensors[info.name] = Tensor(dtype=info.dtype, shape=info.shape, data=data)
        kind, extra = self.manifest.kind, self.manifest.extra
        return Snapshot(version=self.version, tensors=tensors, checksums=dict(checksums), probe=self.probe, kind=kind, extra=extra)

    def _bytes(self, memory: np.ndarray, place: int) -> np.ndarray:
        start = self.offsets[place]
        return memory[start : start + self.manifest.tensors[place].nbytes]

    def _wrong(self, name: str, what: str) -> WeightsError:
        return WeightsError(f"tensor {name!r} of version {self.version}, as the training backend publishes it, {what}")


def _plain(probe: Probe | None) -> dict[str, Any] | None:
    if probe is None:
        return None
    arrays = {name: [array.dtype.str, array.tolist()] for name, array in (("ids", probe.token_ids), ("logprobs", probe.logprobs))}
    return {**arrays, "tolerance": probe.tolerance}


def _probe(plain: dict[str, Any] | None) -> Probe | None:
    if plain is None:
        return None
    ids, logprobs = (np.array(values, dtype) for dtype, values in (plain["ids"], plain["logprobs"]))
    return Probe(token_ids=ids, logprobs=logprobs, tolerance=plain["tolerance"])
