"""What the trainer ranks of test_torch_ranks.py do, each in a process of its own."""

from __future__ import annotations

import atexit
import json
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from rlcore_plugin_torch import gradients as module
from rlcore_plugin_torch.layout import Layout
from rlcore_plugin_torch.ranks import TorchRanks
from rlcore_plugin_torch.sample import sample_batch
from starting import error_of, started

from rlcore.api import LossBatch, TrainBatch, TrainingContext
from rlcore.testing.training.plain_objective import PlainObjective
from rlcore.testing.training.rank_processes import next_rendezvous
from rlcore.testing.training.star_ranks import StarRanks

SHORT = 5.0
"""Seconds that a rank waits for the one that does not come."""


def sums(rank: int, size: int, rendezvous: str) -> dict[str, Any]:
    """Gradients in several buckets and two precisions; one parameter without a gradient here, one without any anywhere."""
    module._BUCKET = 7
    ranks = TorchRanks(rank=rank, layout=Layout(size=size), rendezvous=rendezvous, deadline=60.0)
    ranks.open()
    shapes = [(2, 3), (5,), (2,), (4, 4), (3,)]
    parameters = [
        torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64 if number == 2 else torch.float32)) for number, shape in enumerate(shapes)
    ]
    for number, parameter in enumerate(parameters):
        if number != 4 and (number, rank) != (1, 0):
            parameter.grad = torch.full_like(parameter, 10.0**-number * (rank + 1))
    ranks.sum_gradients(parameters)
    metrics = ranks.sum_metrics(lambda: {"loss": rank + 0.5, f"only/{rank}": 1.0})
    arrays = [part.tolist() for part in ranks.gather(np.full((rank, 2), rank, np.float64))]
    ranks.close()
    grads = [None if parameter.grad is None else parameter.grad.numpy() for parameter in parameters]
    return {"grads": grads, "metrics": metrics, "arrays": arrays, "left": dist.is_initialized(), "seconds": ranks.seconds}


def mishap(rank: int, size: int, rendezvous: str, kind: str, folder: str) -> None:
    """Rank 1 leaves, is silent, or never comes; the others find out, and none leaves before both have. All of them start together."""
    meeting = next_rendezvous(StarRanks(rank, size, rendezvous))
    if (rank, kind) == (1, "never comes"):
        return
    ranks = TorchRanks(rank=rank, layout=Layout(size=size), rendezvous=meeting, deadline=SHORT if kind == "never comes" else 60.0)
    notes = [Path(folder) / f"gave-up-{other}" for other in range(size) if other != 1]
    with closing(ranks):
        ranks.open()
        ranks.gather(np.zeros(1))
        if kind == "is silent":
            assert dist.group.WORLD is not None
            dist.group.WORLD.set_timeout(timedelta(seconds=SHORT))  # not before: they need longer to meet on a busy machine
        if (rank, kind) == (1, "leaves"):
            return
        try:
            if rank != 1:
                ranks.gather(np.zeros(1))
        finally:
            (Path(folder) / f"gave-up-{rank}").touch()
            while not all(note.exists() for note in notes):
                time.sleep(0.02)


def never_closed(rank: int, size: int, rendezvous: str, folder: str) -> None:
    """Write the threads of this process before the group, with it, and at the end of the process."""
    before, note = threads(), Path(folder) / f"threads-{rank}.json"
    atexit.register(lambda: note.write_text(json.dumps([before, during, threads()])))
    ranks = TorchRanks(rank=rank, layout=Layout(size=size), rendezvous=rendezvous, deadline=60.0)
    ranks.open()
    ranks.gather(np.zeros(1))
    during = threads()


def threads() -> dict[str, str]:
    """Native id -> name, as the kernel knows them: gloo's are no threads of Python."""
    return {path.parent.name: path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}


class Refusing(PlainObjective):
    def __call__(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        raise ZeroDivisionError("planted")


def session(rank: int, size: int, rendezvous: str, context: TrainingContext, other: str, folder: str) -> dict[str, Any]:
    """Train, fail, save, go on; meet a rank with another model."""
    lobby = StarRanks(rank, size, rendezvous)
    own = replace(context, rank=rank, world_size=size, rendezvous=next_rendezvous(lobby))
    backend, found = started(own), {}
    share = share_of(rank)
    found["timings"] = [backend.timings(), backend.update(share, PlainObjective()), backend.timings()]
    found["failed"] = error_of(lambda: backend.update(share, Refusing() if rank == 1 else PlainObjective()))
    place = Path(folder)
    backend.save_model(place / "model")
    backend.save(place / "trainer").result()
    found["files"] = sorted(path.name for path in place.rglob("*") if path.is_file())
    found["unsaved"] = error_of(lambda: backend.save(place / "file"))
    found["straight"] = backend.update(share, PlainObjective())
    backend.close()
    found["left"] = dist.is_initialized()
    last = replace(own, rendezvous=next_rendezvous(lobby), model=other if rank == 1 else own.model)
    found["other"] = error_of(lambda: started(last))
    return found


def share_of(rank: int) -> TrainBatch:
    batch = sample_batch(100)
    whole = replace(batch, advantages=np.linspace(-1, 1, 9).astype(np.float32))
    return whole.take(np.array([0, 1]) if rank == 0 else np.array([2]))
