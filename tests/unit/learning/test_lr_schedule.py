from __future__ import annotations

import math

import pytest

from rlcore.api import OptimizerSettings
from rlcore.learning import learning_rate

SETTINGS = OptimizerSettings(learning_rate=2.0, warmup_steps=4, min_lr_ratio=0.1, total_steps=14)


@pytest.mark.parametrize(("step", "expected"), [(0, 0.5), (1, 1.0), (3, 2.0), (4, 2.0), (9, 1.1), (14, 0.2), (99, 0.2)])
def test_warm_up_then_half_a_cosine(step: int, expected: float) -> None:
    assert learning_rate(SETTINGS, step) == pytest.approx(expected)


def test_a_quarter_of_the_way() -> None:
    settings = OptimizerSettings(learning_rate=1.0, min_lr_ratio=0.0, total_steps=8)
    assert learning_rate(settings, 2) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)


def test_all_warm_up_does_not_divide_by_zero() -> None:
    assert learning_rate(OptimizerSettings(learning_rate=1.0, warmup_steps=3, total_steps=3), 3) == pytest.approx(1.0)
