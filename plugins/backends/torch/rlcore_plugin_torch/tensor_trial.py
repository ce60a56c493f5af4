"""Check that a model divided over tensor ranks computes the same as before, forward and backward, on twelve tokens."""

from __future__ import annotations

from collections.abc import Collection

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from rlcore.api import ConfigError
from rlcore_plugin_torch.decoder import decoder_layers
from rlcore_plugin_torch.policy import AGREE, CausalPolicy

__all__ = ["check_sliced", "probed"]

_OF_ITSELF, _OF_ALL = 1e-3, 1e-6
"""Two gradients differ if the gap exceeds this share of the gradient's norm and this share of the norm of all gradients. Some gradients
consist of rounding errors only."""


def probed(model: PreTrainedModel) -> torch.Tensor:
    """Return [11]: log probabilities of the trial tokens, differentiable."""
    policy = CausalPolicy(model=model)
    return policy.probe(torch.arange(2, 14, device=policy.device) % model.get_output_embeddings().weight.shape[0])


def check_sliced(model: PreTrainedModel, mesh: DeviceMesh, before: torch.Tensor, partial: Collection[torch.nn.Parameter]) -> None:
    """Raise ConfigError if the divided model computes other log probabilities or gradients.

    ``before``: ``probed`` of the whole model. ``partial``: parameters for which each rank is known to have only a part of the gradient. The
    gradients of all other parameters that every rank holds must be equal on all ranks.
    """
    advice = "type -tp 1, and -zero 3 to divide the model"
    owner = f"training.tensor_parallel_size {mesh.size()}: divided by its plan in transformers, {type(model).__name__}"
    try:
        with torch.no_grad():
            gap = float((before - probed(model).cpu()).abs().max())
    except (RuntimeError, AttributeError, ValueError) as error:  # the model's own code receives shapes that it was not written for
        raise ConfigError(f"{owner} fails ({str(error).splitlines()[0]}); {advice}") from error
    if not gap <= AGREE:
        raise ConfigError(f"{owner} gives log probabilities that differ by {gap:.2g}; {advice}")
    if name := _differing(model, mesh, partial):
        raise ConfigError(f"{owner} gives the ranks different gradients of {name!r}, which the plan leaves out; {advice}")


def _differing(model: PreTrainedModel, mesh: DeviceMesh, partial: Collection[torch.nn.Parameter]) -> str:
    """Return the name of a parameter inside the decoder layers that all ranks hold but for which their gradients differ; "" if there is
    none."""
    names = {id(item): name for name, item in model.named_parameters()}
    known = {id(item) for item in partial}
    inside = [item for layer in decoder_layers(model) for item in layer.parameters()]
    held = [item for item in inside if item.requires_grad and not isinstance(item, DTensor) and id(item) not in known]
    if not held:
        return ""
    found = torch.autograd.grad(probed(model).sum(), held, allow_unused=True)
    grads = [torch.zeros_like(item) if grad is None else grad for item, grad in zip(held, found, strict=True)]
    group = mesh.get_group()
    everything = torch.stack([grad.norm() for grad in grads]).norm()
    wrong = torch.zeros(len(grads), device=grads[0].device)
    for place, grad in enumerate(grads):
        first = grad.clone()
        dist.broadcast(first, dist.get_global_rank(group, 0), group=group)
        gap = (grad - first).norm()
        wrong[place] = float(gap > _OF_ITSELF * first.norm() and gap > _OF_ALL * everything)
    dist.all_reduce(wrong, op=dist.ReduceOp.MAX, group=group)  # all ranks must refuse together
    return names[id(held[int(wrong.argmax())])] if wrong.any() else ""
