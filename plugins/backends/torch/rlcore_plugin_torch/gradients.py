"""Combine the gradients of all ranks: sum them over the data axis, and make them whole and equal over the tensor axis.

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
"""Elements that are summed at a time: 64 MB of float32, enough to use the full network bandwidth, and little compared with a model."""


@torch.no_grad()
def complete(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Make every ``grad`` exist and have the placements of its parameter."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        elif isinstance(parameter, DTensor) and isinstance(parameter.grad, DTensor) and parameter.grad.placements != parameter.placements:
            parameter.grad = parameter.grad.redistribute(placements=parameter.placements)  # type: ignore[assignment]


@torch.no_grad()
def sum_over_data(parameters: Sequence[torch.nn.Parameter], group: dist.ProcessGroup) -> None:
    """Replace the gradients of each rank's share by their sum over ``group``, bit for bit the same on all ranks."""
    for bucket in _buckets([local(item.grad) for item in parameters if item.grad is not None]):
        flat = torch.cat([part.reshape(-1) for part in bucket])
        dist.all_reduce(flat, group=group)
        for part, total in zip(bucket, torch.split(flat, [part.numel() for part in bucket]), strict=True):
            part.copy_(total.view_as(part))


@torch.no_grad()
def sum_over_tensor(
    parameters: Sequence[torch.nn.Parameter], partial: Collection[torch.nn.Parameter], group: dist.ProcessGroup, tensor_axis: str
) -> None:
    """Make the gradients of parameters that every rank of ``group`` holds equal; slices do not change.

    Gradients of ``partial`` parameters, which each saw only the activations of their own rank, are summed. The other gradients are equal
    except for the order of sums on a device, so all ranks take those of the first rank.
    """
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
    """Yield neighbouring tensors of one dtype, about ``_BUCKET`` elements together."""
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
