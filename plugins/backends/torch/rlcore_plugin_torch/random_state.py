"""The random state of a checkpoint: torch's generator of the CPU and that of one device.

Rank 0 alone saves (``TorchBackend.save``), so the state is its own; every rank restores it, as every rank holds the same model. Other
devices of the machine are left out: a run may be resumed where there are fewer.
"""

from __future__ import annotations

import torch

from rlcore.api import RunError

__all__ = ["random_state", "restore_random"]


def random_state(device: torch.device) -> dict[str, torch.Tensor | None]:
    """``cpu``, and ``cuda``: None on a CPU."""
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None}


def restore_random(state: dict[str, torch.Tensor | None], device: torch.device) -> None:
    """Take what ``random_state`` gave; a state of CUDA is left alone on a CPU, and the other way round. RunError for an older format."""
    cpu, cuda = state["cpu"], state["cuda"]
    if cpu is not None:
        torch.set_rng_state(cpu)
    if device.type != "cuda" or cuda is None:
        return
    if not isinstance(cuda, torch.Tensor):
        raise RunError(
            "the checkpoint's random state is of another version of the torch backend, which kept one of every CUDA device; "
            "read it with that version"
        )
    torch.cuda.set_rng_state(cuda, device)
