"""The part of `make bench-parity` that runs in ColossalAI's environment: the five steps in each layout of the trainer `colossalai`.

    python -m benchmarks.colossal_ranks MODEL ANSWER LAYOUT/DTYPE…

The answer is a pickle of {(layout, dtype): what rank 0 ends with}.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch
from rlcore_plugin_colossalai.colossal_backend import ColossalBackend
from rlcore_plugin_colossalai.options import ColossalOptions

from benchmarks.parity_steps import Run, context_of, train
from rlcore.api import RlcoreError, TrainingContext
from rlcore.testing.training.layout_runs import LAYOUTS
from rlcore.testing.training.rank_processes import next_rendezvous, run_ranks
from rlcore.testing.training.star_ranks import StarRanks


class MeasuredBackend(ColossalBackend):
    """Adds up, at the last step, the bytes a parameter that this rank holds."""

    def setup(self, context: TrainingContext) -> None:
        """See TrainingBackend."""
        super().setup(context)
        step, held = self.optimizer.step, {}
        own, wrapper = self.optimizer.weights.own, self.optimizer.wrapper
        count = sum(shape.numel() for shape in self.optimizer.weights.shapes.values())

        def measured() -> dict[str, float]:
            if self.optimizer.stage:
                stores = {id(store): store for store in wrapper.pid_to_grad_store.values()}.values()
                gradients = [grad for store in stores for group in (0, 1) for grad in _kept(store, group, own.values())]
            else:
                gradients = [item.grad for item in own.values() if item.grad is not None]
            held["gradients"] = _bytes(gradients) / count
            return step()

        self.optimizer.step = measured  # type: ignore[method-assign]
        self.held = held

    def close(self) -> None:
        """See TrainingBackend."""
        if (optimizer := self.__dict__.get("optimizer")) is not None:
            count = sum(shape.numel() for shape in optimizer.weights.shapes.values())
            state = optimizer.wrapper.optim.state
            self.held |= {
                "weights": _bytes(optimizer.weights.own.values()) / count,
                "moments": _bytes(value for each in state.values() for value in each.values() if value.ndim) / count,
                "masters": (_bytes(optimizer.wrapper.working_to_master_param.values()) if optimizer.stage else 0) / count,
            }
        super().close()


def _kept(store: object, group: int, parameters: object) -> list[torch.Tensor]:
    return [part for item in parameters for part in store.get_partitioned_gradients_by_param_id(group, id(item))]  # type: ignore[attr-defined]


def _bytes(tensors: object) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)  # type: ignore[attr-defined]


def train_all(rank: int, size: int, rendezvous: str, contexts: Sequence[TrainingContext]) -> list[Run]:
    """One after the other in the same processes."""
    options = ColossalOptions(ranks_deadline=100.0)
    with closing(StarRanks(rank, size, rendezvous, 200.0)) as lobby:
        placed = [replace(context, rank=rank, rendezvous=next_rendezvous(lobby) if size > 1 else "") for context in contexts]
        return [train(MeasuredBackend(context, options), context) for context in placed]


def main(model: str, answer: str, asked: Sequence[str]) -> int:
    """Processes are started once for all layouts of one count."""
    layouts = {layout.name: layout for layout in LAYOUTS}
    runs: dict[tuple[str, str], Run] = {}
    pairs = [(layouts[name], dtype) for name, _, dtype in (each.rpartition("/") for each in asked)]
    for size in sorted({layout.ranks for layout, _ in pairs}):
        of_size = [(layout, dtype) for layout, dtype in pairs if layout.ranks == size]
        contexts = [context_of(layout, model, dtype) for layout, dtype in of_size]
        (first, *_) = run_ranks("benchmarks.colossal_ranks:train_all", size, contexts, timeout=600.0)
        if isinstance(first, RlcoreError):
            raise first
        runs |= {(layout.name, dtype): run for (layout, dtype), run in zip(of_size, first, strict=True)}
    Path(answer).write_bytes(pickle.dumps(runs))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
