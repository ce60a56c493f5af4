"""Gradients of all ranks brought together: summed over the data axis, made whole and equal over the tensor axis.

Axes of the mesh: data-parallel ranks hold the gradient of their share, tensor-parallel ranks that of their slice of a layer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from rlcore_plugin_torch.sharding import divided_over, local

__all__ = ["complete", "sum_over_data", "sum_over_tensor"]

_BUCKET = 1 << 24
"""Elements that are summed at a time: 64 MB of float32, enough to fill a network, little beside a model."""


@torch.no_grad()
def complete(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Every ``grad`` exists and is placed as its parameter is."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        elif isinstance(parameter, DTensor) and isinstance(parameter.grad, DTensor) and parameter.grad.placements != parameter.placements:
            parameter.grad = parameter.grad.redistribute(placements=parameter.placements)  # type: ignore[assignment]


@torch.no_grad()
def sum_over_data(parameters: Sequence[torch.nn.Parameter], group: dist.ProcessGroup) -> None:
    """Gradients that each rank of ``group`` has of its share become their sum, bit for bit the same on all."""
    for bucket in _buckets([local(item.grad) for item in parameters if item.grad is not None]):
        flat = torch.cat([part.reshape(-1) for part in bucket])
        dist.all_reduce(flat, group=group)
        for part, total in zip(bucket, torch.split(flat, [part.numel() for part in bucket]), strict=True):
            part.copy_(total.view_as(part))


@torch.no_grad()
def sum_over_tensor(
    parameters: Sequence[torch.nn.Parameter], partial: Collection[torch.nn.Parameter], group: dist.ProcessGroup, tensor_axis: str
) -> None:
    """Of parameters that every rank of ``group`` holds: the gradients of ``partial`` ones, each of which saw the activations of its rank
    alone, are summed; of the others, which are equal but for the order of sums on a device, all take the first rank's. Slices stay."""
    first = dist.get_global_rank(group, 0)
    whole = [item for item in parameters if tensor_axis not in divided_over(item)]
    chosen = {id(item) for item in partial}
    sum_over_data([item for item in whole if id(item) in chosen], group)
    for bucket in _buckets([local(item.grad) for item in whole if id(item) not in chosen and item.grad is not None]):
        flat = torch.cat([part.reshape(-1) for part in bucket])
        dist.broadcast(flat, first, group=group)
        for part, equal in zip(bucket, torch.split(flat, [part.numel() for part in bucket]), strict=True):
            part.copy_(equal.view_as(part))


def _buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Neighbours of one dtype, some ``_BUCKET`` elements together."""
    bucket: list[torch.Tensor] = []
    held = 0
    for tensor in tensors:
        if bucket and (held + tensor.numel() > _BUCKET or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket, held = [], 0
        bucket.append(tensor)
        held += tensor.numel()
    if bucket:
        yield bucket
