"""What the trainer ranks of test_colossal_sources.py do, each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from rlcore_plugin_colossalai.colossal_backend import ColossalBackend
from rlcore_plugin_colossalai.options import ColossalOptions

from rlcore.api import OptimizerSettings, TrainingContext
from rlcore.learning.shares import cut_shares
from tests.sources_by_hand import Told, whole_step


def step(
    rank: int, size: int, rendezvous: str, layout: Mapping[str, int], rollouts: int, model: str, old: Told, reference: Told
) -> Mapping[str, float]:
    """One optimizer step on a batch of two sources; its metrics."""
    context = TrainingContext(
        model=model,
        optimizer=OptimizerSettings(learning_rate=1e-3, total_steps=20, max_grad_norm=1e9),
        rollouts_per_forward=rollouts,
        tokens_per_forward=400,
        prompts_per_slice=10,
        dtype="float32",
        device="cpu",
        rank=rank,
        world_size=size,
        rendezvous=rendezvous if size > 1 else "",
        **layout,
    )
    with closing(ColossalBackend(context, ColossalOptions(ranks_deadline=60.0))) as backend:
        backend.setup(context)
        batch, objective = whole_step(old, reference)
        place, shares = backend.data_parallel
        return backend.update(batch.take(cut_shares(batch, shares, backend.cost)[place]), objective)
