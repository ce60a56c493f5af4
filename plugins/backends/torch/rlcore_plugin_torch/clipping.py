"""The global norm of a gradient whose parts are on several ranks, and clipping by it.

The parts of a tensor that is divided over a mesh axis add up over that axis; a tensor that several ranks hold counts once. The squares are
added in the order of the ranks, so that all ranks clip by the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from rlcore_plugin_torch.sharding import local

__all__ = ["scale", "squares"]


@torch.no_grad()
def squares(parameters: Sequence[torch.nn.Parameter], counts: Callable[[torch.Tensor], bool]) -> np.ndarray:
    """Return float64[P]: the sum of squares of this rank's part of each gradient.

    It is 0 if the parameter has no gradient, or if ``counts`` returns False because the copy on another rank is counted.
    """
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
