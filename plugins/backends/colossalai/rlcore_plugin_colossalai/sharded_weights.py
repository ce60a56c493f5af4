"""Whole weights and moments, by Hugging Face name, from the parts that ColossalAI's ranks hold, and back.

A tensor-parallel rank holds rows or columns, possibly with a padded vocabulary; a pipeline stage holds its layers. ZeRO cuts each flattened
tensor of a moment into equal parts, padded with zeros. Tied heads are sent once, as the embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from rlcore.api import Tensor, TensorInfo, WeightsManifest, WeightSource
from rlcore.api.weights import cut_into_buckets
from rlcore_plugin_colossalai.colossal_layout import ColossalLayout

__all__ = ["ColossalSource", "Weights", "outline"]


def outline(model: torch.nn.Module) -> dict[str, torch.Size]:
    """Return the shape of each parameter of a model that is not divided yet, by name; a tied one once."""
    return {name: weight.shape for name, weight in model.named_parameters()}


@dataclass(kw_only=True)
class Weights:
    """The weights of a divided model.

    ``shapes``: of the whole model, by name. ``own``: this rank's parameters, by name. ``owners``: the pipeline stage of each name.
    """

    shapes: Mapping[str, torch.Size]
    own: Mapping[str, torch.nn.Parameter]
    owners: Mapping[str, int]
    layout: ColossalLayout
    rank: int
    tensor_group: dist.ProcessGroup | None
    pipeline_group: dist.ProcessGroup | None
    data_group: dist.ProcessGroup | None
    sliced: frozenset[str]
    """The names in ``own`` that ColossalAI has divided over the tensor axis."""

    def axis(self, name: str) -> int | None:
        """Return the axis along which tensor-parallel ranks hold slices; None if each holds the whole."""
        if name not in self.sliced:
            return None
        whole, local = self.shapes[name], self.own[name].shape
        columns = len(whole) == 2 and local[0] == whole[0] and local[1] * self.layout.tensor == whole[1]
        return 1 if columns else 0

    @torch.no_grad()
    def whole(self, name: str, part: torch.Tensor | None, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return the whole tensor of ``part``; collective.

        ``part`` has the shape of this rank's parameter of that name; None on stages that hold none. ``dtype``: of the parts; None: that of
        the parameters.
        """
        found = None
        if part is not None:
            found = part.detach()
            axis = self.axis(name)
            if axis is not None:
                parts = [torch.empty_like(found) for _ in range(self.layout.tensor)]
                dist.all_gather(parts, found.contiguous(), group=self.tensor_group)
                found = torch.cat(parts, axis)
            found = found[tuple(slice(0, size) for size in self.shapes[name])].contiguous()
        if self.layout.pipeline > 1:
            found = self._from_stage(name, found, dtype)
        assert found is not None
        return found

    def _from_stage(self, name: str, found: torch.Tensor | None, dtype: torch.dtype | None) -> torch.Tensor:
        source = dist.get_global_rank(self.pipeline_group, self.owners[name])
        reference = next(iter(self.own.values()))
        if found is None or source != self.rank:
            found = torch.empty(self.shapes[name], dtype=dtype or reference.dtype, device=reference.device)
        dist.broadcast(found, source, group=self.pipeline_group)
        return found

    def slice_of(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the whole tensor, in the shape of its parameter, padded with zeros."""
        local, axis = self.own[name].shape, self.axis(name)
        if axis is not None:
            start = self.layout.place(self.rank)[2] * local[axis]
            stop = min(start + local[axis], whole.shape[axis])
            whole = whole.narrow(axis, min(start, stop), max(0, stop - start))
        part = torch.zeros(local, dtype=whole.dtype)
        part[tuple(slice(0, size) for size in whole.shape)] = whole
        return part

    @torch.no_grad()
    def unflattened(self, name: str, flat: torch.Tensor) -> torch.Tensor:
        """Return the tensor of a ZeRO part, in the shape of this rank's parameter; collective over the data axis."""
        parameter = self.own[name]
        parts = [flat]
        if self.layout.data > 1:
            parts = [torch.empty_like(flat) for _ in range(self.layout.data)]
            dist.all_gather(parts, flat.contiguous(), group=self.data_group)
        return torch.cat(parts)[: parameter.numel()].view(parameter.shape)

    def flattened(self, name: str, part: torch.Tensor) -> torch.Tensor:
        """Return this rank's ZeRO part of the tensor."""
        flat, data = part.reshape(-1), self.layout.data
        flat = torch.nn.functional.pad(flat, (0, -flat.numel() % data))
        return flat.chunk(data)[self.layout.place(self.rank)[0]].clone()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredTensor(Tensor):
    """A gathered weight; ``data`` is a torch tensor."""

    data: torch.Tensor  # type: ignore[assignment]

    def copy_to(self, memory: np.ndarray) -> None:
        torch.from_numpy(memory).view(getattr(torch, self.dtype)).view(self.shape).copy_(self.data)


class ColossalSource(WeightSource):
    """The current weights, gathered bucket by bucket; whole on every rank, returned by rank 0."""

    def __init__(self, weights: Weights, dtype: str) -> None:
        self._weights, self._dtype = weights, dtype

    def manifest(self) -> WeightsManifest:
        """See WeightSource."""
        shapes = self._weights.shapes
        return WeightsManifest(tensors=tuple(TensorInfo(name=name, dtype=self._dtype, shape=tuple(shapes[name])) for name in shapes))

    def buckets(self, max_bytes: int) -> Iterator[dict[str, Tensor]]:
        """See WeightSource."""
        infos, weights = self.manifest().tensors, self._weights
        for places in cut_into_buckets([info.nbytes for info in infos], max_bytes):
            bucket: dict[str, Tensor] = {}
            for info in infos[places.start : places.stop]:
                whole = weights.whole(info.name, weights.own.get(info.name))
                if weights.rank == 0:
                    bucket[info.name] = GatheredTensor(dtype=info.dtype, shape=info.shape, data=whole)
            yield bucket
