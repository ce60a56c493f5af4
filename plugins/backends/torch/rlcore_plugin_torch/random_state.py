"""The random state of a checkpoint: torch's generator of the CPU and that of one device.

Only rank 0 saves (``TorchBackend.save``), so the saved state is that of rank 0. Every rank restores it, because every rank holds the same
model. Other devices of the machine are left out: a run may resume on a machine with fewer.
"""

from __future__ import annotations

import torch

from rlcore.api import RunError

__all__ = ["random_state", "restore_random"]


def random_state(device: torch.device) -> dict[str, torch.Tensor | None]:
    """Return the states of the generators ``cpu`` and ``cuda``; the latter is None on a CPU."""
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None}


def restore_random(state: dict[str, torch.Tensor | None], device: torch.device) -> None:
    """Restore a state that ``random_state`` returned.

    A state of CUDA is ignored on a CPU; without one, the generator of a CUDA device keeps its state. Raises RunError for an older format.
    """
    cpu, cuda = state["cpu"], state["cuda"]
    if cpu is not None:
        torch.set_rng_state(cpu)
    if device.type != "cuda" or cuda is None:
        return
    if not isinstance(cuda, torch.Tensor):
        raise RunError(
            "the checkpoint's random state is from another version of the torch backend, which saved that of every CUDA device; "
            "read it with that version"
        )
    torch.cuda.set_rng_state(cuda, device)
