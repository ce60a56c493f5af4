"""What the stages of a pipeline are given: each forward as it was planned, since `--tokens-per-forward` bounds it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from rlcore_plugin_colossalai.boosted_model import BoostedModel
from rlcore_plugin_colossalai.colossal_layout import ColossalLayout


class Scheduler:
    """Takes what a stage would, in the order of the real one."""

    num_microbatches = 0

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def forward_backward_step(self, model: Any, data: Any, criterion: Any, *rest: object) -> None:
        self.load_batch(data)
        for _ in range(self.num_microbatches):
            self.shapes.append(tuple(self.load_micro_batch()["input_ids"].shape))
            criterion(None, None)


def test_a_forward_keeps_its_shape_and_stages_are_kept_busy() -> None:
    scheduler, numbers = Scheduler(), []
    layout = ColossalLayout(size=3, pipeline=3)
    model = BoostedModel(torch.nn.Linear(1, 1), SimpleNamespace(scheduler=scheduler), layout, vocabulary=8)
    inputs = [torch.zeros(1, 2010, dtype=torch.int64), torch.zeros(40, 50, dtype=torch.int64)]
    model.run_pipeline(inputs, lambda number, output: numbers.append(number) or torch.zeros(()))
    assert scheduler.shapes == [(1, 2010), (40, 50), (1, 2)]
    assert numbers == [0, 1, 2]
