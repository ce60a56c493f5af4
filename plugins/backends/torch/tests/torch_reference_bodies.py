"""What a rank does whose reference moves."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.layout import Layout
from rlcore_plugin_torch.reference import reference_tensors
from starting import started
from torch.distributed.tensor import DTensor
from torch_layout_bodies import context_of, many_prompts, share_of

from rlcore.api import ModelRole
from rlcore.testing.training.plain_objective import PlainObjective

__all__ = ["begun", "gone_on"]


def begun(rank: int, size: int, rendezvous: str, layout: Layout, model: str, folder: str) -> dict[str, Any]:
    """A step, a soft sync, a checkpoint; then ``_next``."""
    with closing(started(context_of(model, layout, rank, rendezvous, "float32"), offload=("reference",))) as backend:
        backend.update(share_of(many_prompts(0), *backend.data_parallel, 0), PlainObjective())
        backend.sync_reference(0.25)
        backend.save_model(Path(folder) / "model")
        backend.save(Path(folder) / "trainer").result()
        return _next(backend)


def gone_on(rank: int, size: int, rendezvous: str, layout: Layout, model: str, folder: str) -> dict[str, Any]:
    """``_next`` from the checkpoint."""
    with closing(started(context_of(f"{folder}/model", layout, rank, rendezvous, "float32"))) as backend:
        backend.load(Path(folder) / "trainer")
        return _next(backend)


def _next(backend: TorchBackend) -> dict[str, Any]:
    """The reference; a step, and another sync; the reference then. Weights whole, log probabilities of the same rollouts on each rank."""
    found: dict[str, Any] = {"saved": _whole(backend), "scored": np.array(backend.logprobs(many_prompts(0), ModelRole.REFERENCE))}
    backend.update(share_of(many_prompts(1), *backend.data_parallel, 0), PlainObjective())
    backend.sync_reference(0.5)
    return {**found, "moved": _whole(backend), "scored later": np.array(backend.logprobs(many_prompts(0), ModelRole.REFERENCE))}


def _whole(backend: TorchBackend) -> dict[str, np.ndarray]:
    weights = reference_tensors(backend._reference_policy().model)
    return {name: (w.full_tensor() if isinstance(w, DTensor) else w).numpy().copy() for name, w in weights.items()}
