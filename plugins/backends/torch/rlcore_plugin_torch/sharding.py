"""FSDP2 over the data axis: every rank holds a part of each tensor, and a layer is whole only while it computes.

Source: Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel" (arXiv 2304.11277); Rajbhandari et al., "ZeRO"
(arXiv 1910.02054).
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from rlcore_plugin_torch.decoder import decoder_layers
from rlcore_plugin_torch.policy import CausalPolicy

__all__ = ["divide", "divided_over", "local", "reshard"]


def divide(policy: CausalPolicy, mesh: DeviceMesh, *, reshards: bool) -> None:
    """Divide the policy over ``mesh`` (one axis), layer by layer, and the rest as one unit; its tensors move to the mesh's device.

    Weights are gathered in their own precision, which is float32 even for bfloat16 compute. Autocast then rounds the same values as on one
    rank, so that all layouts compute the same. Gradients are summed over the ranks, never averaged, because the losses of the shares add
    up.
    """
    for layer in decoder_layers(policy.model):
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshards)
    fully_shard(policy, mesh=mesh, reshard_after_forward=False)
    for module in _units(policy):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # type: ignore[no-untyped-call]


def reshard(policy: CausalPolicy) -> None:
    """Divide the tensors that a forward pass without a backward pass left whole. They would be stale after the next step."""
    for module in _units(policy):
        module.reshard()  # type: ignore[no-untyped-call]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of the tensor that this rank holds; it shares the memory."""
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def divided_over(tensor: torch.Tensor) -> set[str]:
    """Return the names of the mesh axes over which a tensor is divided."""
    if not isinstance(tensor, DTensor):
        return set()
    names = tensor.device_mesh.mesh_dim_names or ()
    return {name for name, placement in zip(names, tensor.placements, strict=True) if not placement.is_replicate()}


def _units(policy: CausalPolicy) -> list[FSDPModule]:
    return [module for module in policy.modules() if isinstance(module, FSDPModule)]
