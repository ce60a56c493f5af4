"""What the trainer ranks of test_torch_optimizers.py do, each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from exact_backend import ExactBackend
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.layout import Layout
from rlcore_plugin_torch.muon import Muon
from starting import started
from torch.distributed.tensor import DTensor
from torch_layout_bodies import LORA, context_of, many_prompts, masters, part, share_of

from rlcore.api import OptimizerFactory, OptimizerSettings, TrainingContext
from rlcore.learning.lr_schedule import WarmupStableDecay, WarmupStableDecayOptions
from rlcore.testing.algorithms.fake_optimizer import FakeOptimizer
from rlcore.testing.training.plain_objective import PlainObjective
from rlcore.testing.training.rank_processes import next_rendezvous
from rlcore.testing.training.star_ranks import StarRanks

STEPS, SAVED_AFTER = 4, 2
WSD = WarmupStableDecay(WarmupStableDecayOptions(decay_share=0.5))


class Factored(OptimizerFactory):
    """Adafactor: the second moments of a matrix are a column and a row, which no rank can divide like the matrix."""

    def build(
        self, parameters: Mapping[str, torch.nn.Parameter], settings: OptimizerSettings, *, tables: Set[str]
    ) -> Sequence[torch.optim.Optimizer]:
        return [torch.optim.Adafactor(list(parameters.values()), weight_decay=0.0)]


CHOSEN: dict[str, OptimizerFactory] = {"muon": Muon(), "elementwise": FakeOptimizer(), "factored": Factored(), "adapters": Muon()}


def contexts(rank: int, layout: Layout, rendezvous: str, model: str, case: str) -> TrainingContext:
    context = context_of(model, layout, rank, rendezvous, "float64", LORA if case == "adapters" else None)
    optimizer = replace(context.optimizer, optimizer=CHOSEN[case], schedule=WSD, total_steps=STEPS, learning_rate=0.02)
    return replace(context, optimizer=optimizer, needs=frozenset())


def stepped(backend: TorchBackend, steps: range) -> list[Mapping[str, float]]:
    """The metrics of these steps; in the third one the last place has nothing."""
    place, size = backend.data_parallel
    return [backend.update(share_of(many_prompts(step), place, size, step), PlainObjective()) for step in steps]


def weights_of(backend: TorchBackend) -> dict[str, np.ndarray]:
    """The trained weights, whole."""
    if backend.adapters is None:
        return masters(backend)
    found = backend.adapters.tensors().items()
    return {name: (w.full_tensor() if isinstance(w, DTensor) else w).detach().numpy().copy() for name, w in found}


def held(backend: TorchBackend) -> int:
    """Elements of this rank's part of the optimizer's tensors with axes."""
    return sum(part(tensor).numel() for tensor in backend.optimizer.moments().values())


def run(rank: int, size: int, rendezvous: str, layout: Layout, model: str, folder: str, cases: Sequence[str]) -> dict[str, Any]:
    """Of each case: the weights after some steps, what was saved before, and the same steps after a resume."""
    found: dict[str, Any] = {}
    with closing(StarRanks(rank, size, rendezvous, deadline=400.0)) as lobby:
        for case in cases:
            place = Path(folder) / case
            with closing(started(contexts(rank, layout, next_rendezvous(lobby), model, case), ExactBackend)) as backend:
                before, metrics = weights_of(backend), stepped(backend, range(SAVED_AFTER))
                (place / "model").mkdir(parents=True, exist_ok=True)
                backend.save_model(place / "model")
                backend.save(place / "trainer").result()
                metrics += stepped(backend, range(SAVED_AFTER, STEPS))
                found[case] = {"before": before, "metrics": metrics, "after": weights_of(backend), "held": held(backend)}
            found[case]["resumed"] = resumed(rank, layout, next_rendezvous(lobby), folder, case)
    return found


def resumed(rank: int, layout: Layout, rendezvous: str, folder: str, case: str) -> dict[str, Any]:
    """The rest of the steps, from the checkpoint of a run in any layout."""
    place = Path(folder) / case
    with closing(started(contexts(rank, layout, rendezvous, str(place / "model"), case), ExactBackend)) as backend:
        backend.load(place / "trainer")
        metrics = stepped(backend, range(SAVED_AFTER, STEPS))
        return {"metrics": metrics, "after": weights_of(backend)}


def resume(rank: int, size: int, rendezvous: str, layout: Layout, folder: str, cases: Sequence[str]) -> dict[str, Any]:
    """``resumed`` alone."""
    with closing(StarRanks(rank, size, rendezvous, deadline=400.0)) as lobby:
        return {case: resumed(rank, layout, next_rendezvous(lobby), folder, case) for case in cases}
