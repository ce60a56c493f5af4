"""Move the reference model towards the policy, in place, on the part of each tensor that this rank holds.

Source of a reference that moves: Gorbatovski et al., "Learn Your Reference Model for Real Good Alignment" (arXiv 2404.09656), hard and
soft updates.
"""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from rlcore.api import RunError
from rlcore_plugin_torch.sharding import local
from rlcore_plugin_torch.weights import named_weights

__all__ = ["mix", "reference_tensors"]


@torch.no_grad()
def mix(reference: PreTrainedModel, policy: PreTrainedModel, share: float) -> None:
    """Set the reference to ``(1 - share) * reference + share * policy``; both are divided alike.

    Raises RunError if their tensors have other names or shapes.
    """
    own, new = named_weights(reference), named_weights(policy)
    for name in sorted(own.keys() | new.keys()):
        if name not in own or name not in new or own[name].shape != new[name].shape:
            raise RunError(
                f"the reference cannot move towards the policy: the tensor {name!r} is absent from one of them or has another shape; name "
                "a --reference of the same architecture, or type --reference-sync-steps 0"
            )
        place, value = local(own[name]), local(new[name])
        if share < 1.0 and place.is_floating_point():
            place.lerp_(value, share)
        else:
            place.copy_(value)


def reference_tensors(reference: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint that hold a reference which has moved."""
    return {f"reference.{name}": weight.detach() for name, weight in named_weights(reference).items()}
