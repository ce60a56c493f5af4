"""Weights in tests: a source of arrays in host memory, and the weights that a trainer hands out, collected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np

from rlcore.contracts.interfaces import TrainingBackend
from rlcore.contracts.snapshots import (
    BUCKET_BYTES,
    Probe,
    Snapshot,
    Tensor,
    WeightsKind,
    WeightsManifest,
    WeightSource,
    cut_into_buckets,
)
from rlcore.contracts.weight_transfer import Publisher
from rlcore.weights.host_layout import HostLayout

__all__ = ["HostSource", "adapter_source", "delta_source", "handed_out", "mis_sealing", "publish", "resealed", "snapshot_of", "weights_of"]


class HostSource(WeightSource):
    """A source of tensors in host memory, by name, as a numpy trainer has them."""

    def __init__(self, tensors: Mapping[str, Tensor], kind: WeightsKind = WeightsKind.FULL, extra: Mapping[str, str] | None = None) -> None:
        self.tensors = dict(tensors)
        self._kind, self._extra = kind, dict(extra or {})

    def manifest(self) -> WeightsManifest:
        """Return the manifest of the tensors that ``buckets`` yields."""
        infos = tuple(tensor.info(name) for name, tensor in self.tensors.items())
        return WeightsManifest(tensors=infos, kind=self._kind, extra=self._extra)

    def buckets(self, max_bytes: int) -> Iterator[Mapping[str, Tensor]]:
        """Yield the tensors in order."""
        names = list(self.tensors)
        for places in cut_into_buckets([tensor.data.nbytes for tensor in self.tensors.values()], max_bytes):
            yield {names[place]: self.tensors[names[place]] for place in places}


def delta_source(before: Mapping[str, Tensor], after: Mapping[str, Tensor], version: int) -> HostSource:
    """Return the differences from the tensors of ``version`` to those after it, float32 each, as a trainer of deltas hands them out."""
    tensors = {name: replace(tensor, data=tensor.data - before[name].data) for name, tensor in after.items()}
    return HostSource(tensors, WeightsKind.DELTA, {"base": str(version)})


def adapter_source(shapes: Mapping[str, tuple[int, int]], rank: int, seed: int = 0) -> HostSource:
    """Return a LoRA adapter of random matrices for weights of these shapes [rows, columns]: ``NAME.lora_B`` [rows, rank] times
    ``NAME.lora_A`` [rank, columns] is added to the weight."""
    draw, tensors = np.random.default_rng(seed), {}
    for name, (rows, columns) in shapes.items():
        for part, shape in (("lora_A", (rank, columns)), ("lora_B", (rows, rank))):
            tensors[f"{name}.{part}"] = Tensor(dtype="float32", shape=shape, data=draw.normal(0, 0.3, shape).astype(np.float32))
    return HostSource(tensors, WeightsKind.ADAPTER, {"rank": str(rank)})


def weights_of(backend: TrainingBackend, bucket_bytes: int = BUCKET_BYTES) -> dict[str, Tensor]:
    """Return every tensor that a trainer hands out, copied into host memory and compared with its manifest."""
    return dict(snapshot_of(0, backend, bucket_bytes=bucket_bytes).tensors)


def snapshot_of(version: int, backend: TrainingBackend, probe: Probe | None = None, *, bucket_bytes: int = BUCKET_BYTES) -> Snapshot:
    """Return the weights of a trainer as a producer holds them after they have arrived."""
    source = backend.weight_source()
    layout = HostLayout(version=version, manifest=source.manifest(), probe=probe)
    memory = np.zeros(layout.size, np.uint8)
    layout.fill(source, memory, bucket_bytes)
    return layout.verified(memory, layout.seal(memory, range(len(layout.offsets))))


def resealed(snapshot: Snapshot, tensors: Mapping[str, Tensor]) -> Snapshot:
    """Return the same version with other tensors, sealed as they are."""
    return replace(snapshot, tensors=dict(tensors), checksums={name: tensor.checksum for name, tensor in tensors.items()})


@contextmanager
def mis_sealing(name: str) -> Iterator[None]:
    """Let every sender of this process give this tensor a wrong checksum."""
    seal = HostLayout.seal

    def wrong(layout: HostLayout, memory: np.ndarray, places: Sequence[int]) -> np.ndarray:
        damaged = [layout.manifest.tensors[place].name == name for place in places]
        return seal(layout, memory, places) ^ np.array(damaged, np.uint64)

    with mock.patch.object(HostLayout, "seal", wrong):
        yield


def handed_out(backend: TrainingBackend) -> dict[str, Tensor]:
    """Return copies of the weights that this rank hands out: all of them on rank 0, on the others as many as they have."""
    source, copied = backend.weight_source(), {}
    infos = {info.name: info for info in source.manifest().tensors}
    for bucket in source.buckets(BUCKET_BYTES):
        for name, tensor in bucket.items():
            memory = np.zeros(infos[name].nbytes, np.uint8)
            tensor.copy_to(memory)
            data = memory.view(infos[name].carrier).reshape(tensor.shape)
            copied[name] = Tensor(dtype=tensor.dtype, shape=tuple(tensor.shape), data=data)
    return copied


def publish(publisher: Publisher, snapshot: Snapshot) -> None:
    """Publish the tensors of a snapshot, as a trainer does."""
    publisher.publish(snapshot.version, HostSource(snapshot.tensors, snapshot.kind, snapshot.extra), snapshot.probe)
