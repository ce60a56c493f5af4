"""The global norm of a gradient that several ranks hold in parts, and clipping by it.

A tensor divided over an axis of the mesh adds up over that axis; one that several ranks hold counts once. The squares are added in the
order of the ranks, so that all of them clip by the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from rlcore_plugin_torch.sharding import local

__all__ = ["scale", "squares"]


@torch.no_grad()
def squares(parameters: Sequence[torch.nn.Parameter], counts: Callable[[torch.Tensor], bool]) -> np.ndarray:
    """float64[P]: the sum of squares of the part of each gradient that this rank holds; 0 if it has none, or ``counts`` says that another
    rank's copy is the one that counts."""
    own = np.zeros(len(parameters))
    places = [place for place, item in enumerate(parameters) if item.grad is not None and counts(item)]
    if places:
        parts = [local(parameters[place].grad) for place in places]  # type: ignore[arg-type]
        norms = torch.stack([torch.linalg.vector_norm(part).double() for part in parts])
        own[places] = norms.cpu().numpy() ** 2
    return own


@torch.no_grad()
def scale(parameters: Sequence[torch.nn.Parameter], norm: float, limit: float) -> None:
    """Multiply all gradients by limit / norm if the norm is larger."""
    factor = limit / (norm + 1e-6)
    if factor < 1.0:
        for item in parameters:
            if item.grad is not None:
                local(item.grad).mul_(factor)
