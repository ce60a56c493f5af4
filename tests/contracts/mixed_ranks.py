"""What one trainer rank does in test_mixed_layouts.py: optimizer steps of a real tiny Qwen2 on a batch of two sources."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from rank_update import ExactBackend
from rlcore_plugin_torch.options import TorchOptions
from torch.distributed.tensor import DTensor

from rlcore.api import OptimizerSettings, TrainingContext
from rlcore.learning.shares import cut_shares
from rlcore.testing.training.rank_processes import next_rendezvous
from rlcore.testing.training.star_ranks import StarRanks
from tests.sources_by_hand import Told, whole_step


@dataclass(frozen=True, kw_only=True)
class Case:
    """A layout and a cut. ``size`` ranks, of which ``tensor`` divide a layer; ``zero`` as -zero."""

    size: int = 1
    tensor: int = 1
    zero: int = 0
    rollouts: int = 64
    packing: str = "off"


@dataclass(frozen=True, kw_only=True)
class Stepped:
    """The gradient of a step before it is clipped, whole, by tensor, and the metrics."""

    gradient: dict[str, np.ndarray]
    metrics: Mapping[str, float]


def step(rank: int, case: Case, rendezvous: str, model: str, old: Told, reference: Told) -> Stepped:
    context = TrainingContext(
        model=model,
        optimizer=OptimizerSettings(learning_rate=1e-3, total_steps=20, max_grad_norm=0.05),
        rollouts_per_forward=case.rollouts,
        tokens_per_forward=400,
        prompts_per_slice=10,
        dtype="float64",
        device="cpu",
        rank=rank,
        world_size=case.size,
        rendezvous=rendezvous if case.size > 1 else "",
        tensor_parallel=case.tensor,
        zero_stage=case.zero,
    )
    options: dict[str, Any] = {"threads": 1, "ranks_deadline": 100.0, "packing": case.packing}
    with closing(ExactBackend(context, TorchOptions(**options))) as backend:
        backend.setup(context)
        gradient: dict[str, np.ndarray] = {}
        stepped = backend.optimizer.step

        def recorded() -> dict[str, float]:
            for name, item in backend.policy.model.named_parameters():
                if item.grad is not None:
                    whole = item.grad.full_tensor() if isinstance(item.grad, DTensor) else item.grad
                    gradient[name] = whole.numpy().copy()
            return stepped()

        backend.optimizer.step = recorded  # type: ignore[method-assign]
        batch, objective = whole_step(old, reference)
        place, size = backend.data_parallel
        share = batch.take(cut_shares(batch, size, backend.cost)[place])
        return Stepped(gradient=gradient, metrics=backend.update(share, objective))


def session(rank: int, size: int, rendezvous: str, cases: Mapping[str, Case], *given: Any) -> dict[str, Stepped]:
    """Every case in one set of processes: most of a rank's time goes into its imports."""
    with closing(StarRanks(rank, size, rendezvous, deadline=400.0)) as lobby:
        return {name: step(rank, case, next_rendezvous(lobby), *given) for name, case in cases.items()}
