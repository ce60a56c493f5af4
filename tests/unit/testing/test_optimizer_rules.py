"""What the rules of the optimizer are measured by."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlcore.contracts.training_settings import OptimizerSettings
from rlcore.learning import learning_rate
from rlcore.testing.training.optimizer_rules import FLOOR, SHARES, TOTAL, WARMUP, adamw_moves


@pytest.mark.parametrize("betas", [(0.6, 0.8), (0.9, 0.95), (0.0, 0.999)])
def test_the_reference_moves_a_weight_as_torch_does(betas: tuple[float, float]) -> None:
    gradients = (1.0, 4.0, 0.25, -2.0)
    weight = torch.zeros((), dtype=torch.float64, requires_grad=True)
    adam, places = torch.optim.AdamW([weight], lr=1.0, betas=betas, eps=0.0, weight_decay=0.0), [0.0]
    for gradient in gradients:
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        adam.step()
        places.append(float(weight.detach()))
    assert adamw_moves(gradients, betas) == pytest.approx(-np.diff(places), rel=1e-12)


def test_the_shares_are_those_of_the_schedule() -> None:
    settings = OptimizerSettings(learning_rate=2.0, warmup_steps=WARMUP, total_steps=TOTAL, min_lr_ratio=FLOOR)
    assert [learning_rate(settings, step) / 2.0 for step in range(len(SHARES))] == pytest.approx(SHARES, abs=1e-7)
