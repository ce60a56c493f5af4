"""One snapshot as one run of bytes: where each tensor lies, and what is needed to make a snapshot of the bytes again.

Every transport but the in-process one uses it, so that damage, dtypes and probes are treated alike. It knows nothing of how bytes travel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import LateChecksums, Probe, Snapshot, Tensor, compare_checksums, tensor_hasher

__all__ = ["CHUNK", "Follower", "Manifest", "Place", "write_tensors"]

CHUNK = 2 << 20
"""Bytes that are copied and hashed at a time: what is read a second time then still lies in a cache."""
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Where one tensor lies: ``size`` bytes from ``offset``, elements of the numpy dtype ``carrier``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    carrier: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot is made of, without its bytes and without its checksums; ``sealed``: the names that have one, in order."""

    version: int
    places: tuple[Place, ...]
    sealed: tuple[str, ...]
    probe: Probe | None
    size: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> Manifest:
        """Lay the tensors out one after the other, each on a boundary of 64 bytes."""
        places, offset = [], 0
        for name, tensor in snapshot.tensors.items():
            size = tensor.data.nbytes
            places.append(Place(name, tensor.dtype, tuple(tensor.shape), tensor.data.dtype.str, offset, size))
            offset += -(-size // _ALIGNMENT) * _ALIGNMENT
        return cls(snapshot.version, tuple(places), tuple(snapshot.checksums), snapshot.probe, offset)

    def to_bytes(self) -> bytes:
        """JSON, UTF-8."""
        places = [[p.name, p.dtype, list(p.shape), p.carrier, p.offset, p.size] for p in self.places]
        fields = {"version": self.version, "places": places, "sealed": self.sealed, "probe": _plain(self.probe), "size": self.size}
        return json.dumps(fields).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Manifest:
        """What ``to_bytes`` wrote; WeightsError where it is something else."""
        try:
            fields = json.loads(text)
            places = tuple(Place(n, d, tuple(shape), c, offset, size) for n, d, shape, c, offset, size in fields["places"])
            return cls(fields["version"], places, tuple(fields["sealed"]), _probe(fields["probe"]), fields["size"])
        except (ValueError, KeyError, TypeError) as error:
            raise WeightsError(f"the list of tensors of a snapshot arrived damaged: {error}") from error

    def snapshot(self, flat: np.ndarray, checksums: Mapping[str, int]) -> Snapshot:
        """A snapshot whose tensors are read-only views of ``flat``, uint8[at least size]; not verified."""
        tensors = {}
        for place in self.places:
            data = flat[place.offset : place.offset + place.size].view(place.carrier)
            # A record whose shape does not fit its bytes is for the backend to refuse; it knows the model's.
            data = data.reshape(place.shape) if data.size == int(np.prod(place.shape, dtype=np.int64)) else data
            data.flags.writeable = False
            tensors[place.name] = Tensor(dtype=place.dtype, shape=place.shape, data=data)
        return Snapshot(version=self.version, tensors=tensors, checksums=dict(checksums), probe=self.probe)


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


def write_tensors(snapshot: Snapshot, manifest: Manifest, flat: np.ndarray, checksums: np.ndarray) -> Iterator[int]:
    """Copy every tensor into ``flat`` uint8[size], and the checksum of each sealed name into ``checksums`` uint64[names].

    Yields the bytes reached, each time about ``CHUNK`` more of them are in place. Checksums that the snapshot brings along are the
    sender's, and stay; late ones are taken here from the source, while the chunk is in a cache, so memory is read once.
    """
    late = isinstance(snapshot.checksums, LateChecksums)
    taken: dict[str, int] = {} if late else dict(snapshot.checksums)
    told = 0
    for place in manifest.places:
        tensor = snapshot.tensors[place.name]
        source, hasher = tensor.flat, tensor_hasher(tensor.dtype, tensor.shape)
        for start in range(0, place.size, CHUNK):
            piece = source[start : start + CHUNK]
            reached = place.offset + start + len(piece)
            flat[place.offset + start : reached] = piece
            if reached - told >= CHUNK:
                told = reached
                yield reached
            if late:
                hasher.update(piece.data)
        if late:
            taken[place.name] = hasher.intdigest()
    checksums[:] = [taken[name] for name in manifest.sealed]


class Follower:
    """A receiver's checksums, taken behind the writer, chunk by chunk."""

    def __init__(self, manifest: Manifest, flat: np.ndarray) -> None:
        self.manifest = manifest
        self.reached = 0
        self._flat = flat
        self._taken: dict[str, int] = {}
        self._places = iter(manifest.places)
        self._place: Place | None = None
        self._hasher = xxhash.xxh3_64()
        self._next_place()

    def follow(self, reached: int) -> None:
        """Bytes before ``reached`` are in place: hash those that are new."""
        while self._place is not None and self._place.offset + self._place.size <= reached:
            self._take(self._place, self._place.offset + self._place.size)
            self._taken[self._place.name] = self._hasher.intdigest()
            self._next_place()
        if self._place is not None and self.reached < reached:
            self._take(self._place, reached)

    def whole(self, checksums: np.ndarray) -> Snapshot:
        """The verified snapshot; WeightsError, naming the tensor, where a checksum uint64[sealed names] is another."""
        self.follow(self.manifest.size)
        sealed = {name: int(value) for name, value in zip(self.manifest.sealed, checksums, strict=True)}
        snapshot = self.manifest.snapshot(self._flat, sealed)
        compare_checksums(snapshot, self._taken)
        return snapshot

    def where(self) -> str:
        """How far it came, for messages."""
        tensor = f"tensor {self._place.name!r}" if self._place is not None else "the end"
        return f"{tensor}, {self.reached / 1e6:.1f} of {self.manifest.size / 1e6:.1f} MB"

    def _take(self, place: Place, end: int) -> None:
        start = max(self.reached, place.offset)
        if end > start:
            self._hasher.update(self._flat[start:end].data)
            self.reached = end

    def _next_place(self) -> None:
        self._place = next(self._places, None)
        if self._place is not None:
            self._hasher = tensor_hasher(self._place.dtype, self._place.shape)
