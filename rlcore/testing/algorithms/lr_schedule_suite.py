"""Conformance suite for learning-rate schedules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from rlcore.contracts.training_settings import LearningRateSchedule, OptimizerSettings
from rlcore.learning.lr_schedule import learning_rate

__all__ = ["LearningRateScheduleSuite"]

_LENGTHS = (1, 2, 7, 100, 10_000)


class LearningRateScheduleSuite(ABC):
    """The rules of a learning-rate schedule. A subclass defines how to make it."""

    @abstractmethod
    def make(self) -> LearningRateSchedule:
        """Return a fresh schedule."""

    def test_every_share_is_a_number_of_at_least_0(self) -> None:
        """Every step of a run of any length, and those after its end, has a finite share of at least 0."""
        for steps in _LENGTHS:
            for step in {0, 1, steps // 2, steps - 1, steps, steps + 1, 3 * steps}:
                share = self.make().share(step, steps)
                assert isinstance(share, float | int), f"share({step}, {steps}) is {share!r}"
                assert 0.0 <= share < math.inf, f"share({step}, {steps}) is {share}"

    def test_the_run_trains(self) -> None:
        """Some step of a run of any length has a share above 0."""
        for steps in _LENGTHS:
            schedule = self.make()
            assert any(schedule.share(step, steps) > 0.0 for step in range(steps)), f"all {steps} shares of a run are 0"

    def test_a_step_is_on_its_own(self) -> None:
        """The share of a step does not depend on earlier calls: a resumed run begins in the middle, and each rank asks by itself."""
        walked = self.make()
        shares = [walked.share(step, 20) for step in range(20)]
        again = [self.make().share(step, 20) for step in reversed(range(20))][::-1]
        assert shares == again, f"asked in order {shares}, each of a fresh schedule {again}"
        assert [walked.share(step, 20) for step in range(20)] == shares, "a second walk over the same steps gives other shares"

    def test_an_optimizer_follows_it(self) -> None:
        """After the warm-up, the learning rate is between ``min_lr_ratio`` and the peak in proportion to the share."""
        settings = OptimizerSettings(learning_rate=3.0, warmup_steps=2, min_lr_ratio=0.25, total_steps=12, schedule=self.make())
        for step in range(2, 14):
            expected = 3.0 * (0.25 + 0.75 * self.make().share(step - 2, 10))
            assert math.isclose(learning_rate(settings, step), expected, rel_tol=1e-12), f"the rate of step {step} is not {expected}"
