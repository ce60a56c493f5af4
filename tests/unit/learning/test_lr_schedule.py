from __future__ import annotations

import math

import pytest

from rlcore.api import LearningRateSchedule, OptimizerSettings, RunError
from rlcore.learning import learning_rate
from rlcore.learning.lr_schedule import (
    Constant,
    Cosine,
    InverseSquareRoot,
    InverseSquareRootOptions,
    Linear,
    WarmupStableDecay,
    WarmupStableDecayOptions,
)

SETTINGS = OptimizerSettings(learning_rate=2.0, warmup_steps=4, min_lr_ratio=0.1, total_steps=14)


@pytest.mark.parametrize(("step", "expected"), [(0, 0.5), (1, 1.0), (3, 2.0), (4, 2.0), (9, 1.1), (14, 0.2), (99, 0.2)])
def test_warm_up_then_half_a_cosine(step: int, expected: float) -> None:
    assert learning_rate(SETTINGS, step) == pytest.approx(expected)


def test_a_quarter_of_the_way() -> None:
    settings = OptimizerSettings(learning_rate=1.0, min_lr_ratio=0.0, total_steps=8)
    assert learning_rate(settings, 2) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)


def test_all_warm_up_does_not_divide_by_zero() -> None:
    assert learning_rate(OptimizerSettings(learning_rate=1.0, warmup_steps=3, total_steps=3), 3) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (Constant(), [2.0, 2.0, 2.0, 2.0]),
        (Linear(), [2.0, 1.1, 0.38, 0.2]),
        (Cosine(), [2.0, 1.1, 0.2440, 0.2]),
        (WarmupStableDecay(WarmupStableDecayOptions(decay_share=0.5)), [2.0, 2.0, 0.56, 0.2]),
        (InverseSquareRoot(InverseSquareRootOptions(timescale=5)), [2.0, 1.4728, 1.2757, 1.2392]),
    ],
)
def test_the_course_after_the_warm_up(schedule: LearningRateSchedule, rates: list[float]) -> None:
    """At steps 0, 5, 9 and 10 of 10, worked out by hand from the formulas."""
    settings = OptimizerSettings(learning_rate=2.0, warmup_steps=4, min_lr_ratio=0.1, total_steps=14, schedule=schedule)
    found = [learning_rate(settings, 4 + step) for step in (0, 5, 9, 10)]
    assert found == pytest.approx(rates, abs=1e-4)


class Odd(LearningRateSchedule):
    def __init__(self, share: object) -> None:
        self._share = share

    def share(self, step: int, steps: int) -> float:
        return self._share  # type: ignore[return-value]


@pytest.mark.parametrize("share", [-0.1, math.nan, math.inf])
def test_a_share_that_is_no_share_is_told(share: float) -> None:
    with pytest.raises(RunError, match=r"learning-rate schedule Odd returned the share .* for step 3; it must be a finite number"):
        learning_rate(OptimizerSettings(learning_rate=1.0, total_steps=9, schedule=Odd(share)), 3)


def test_a_schedule_that_raises_is_named() -> None:
    with pytest.raises(RunError, match="learning-rate schedule Odd"):
        learning_rate(OptimizerSettings(learning_rate=1.0, total_steps=9, schedule=Odd("high")), 3)
