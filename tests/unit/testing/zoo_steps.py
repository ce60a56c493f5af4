"""Trainers whose steps, or whose way back from a checkpoint, have one planted bug each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import Objective, TrainingContext
from rlcore.learning import learning_rate
from rlcore.testing import FakePolicy, FakeTraining
from rlcore.testing.optimizer import NumpyOptimizer

__all__ = ["STEP_ZOO"]

Arrays = Mapping[str, np.ndarray]
Stepped = tuple[dict[str, np.ndarray], dict[str, float]]


class DropsLastMicroBatch(FakeTraining):
    """A loop that ends one micro-batch too early, if there are several."""

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        trains, size = np.flatnonzero(batch.in_loss), self.context.rollouts_per_forward
        if len(trains) > size:
            kept = batch.in_loss.copy()
            kept[trains[(len(trains) - 1) // size * size :]] = False
            batch = replace(batch, in_loss=kept)
        return super().update(batch, objective)


class OwnOptimizer(FakeTraining):
    """A fake trainer with another optimizer."""

    kind: type[NumpyOptimizer] = NumpyOptimizer

    def setup(self, context: TrainingContext) -> None:
        super().setup(context)
        self.optimizer = self.kind(context.optimizer, self.policy.arrays())


class Stepping(NumpyOptimizer):
    """Replaces a gradient that is not finite by zeros, and steps."""

    def step(self, weights: Arrays, gradient: Arrays) -> Stepped:
        if all(np.isfinite(array).all() for array in gradient.values()):
            return super().step(weights, gradient)
        new, metrics = super().step(weights, {name: np.zeros_like(array) for name, array in gradient.items()})
        return new, {**metrics, "grad_norm": float("nan"), "skipped_steps": 1.0}


class StepsOnNan(OwnOptimizer):
    kind = Stepping


class Spoiling(NumpyOptimizer):
    """Leaves the weights alone; the moments have taken the NaN by then."""

    def step(self, weights: Arrays, gradient: Arrays) -> Stepped:
        new, metrics = super().step(weights, gradient)
        if "skipped_steps" in metrics:
            self.second = {name: array * 1.01 for name, array in self.second.items()}
        return new, metrics


class SpoilsMoments(OwnOptimizer):
    kind = Spoiling


class Moving(NumpyOptimizer):
    """The schedule counts steps that were not taken."""

    late = 0

    @property
    def rate(self) -> float:
        return learning_rate(self.settings, self.steps + self.late)

    def step(self, weights: Arrays, gradient: Arrays) -> Stepped:
        new, metrics = super().step(weights, gradient)
        self.late += "skipped_steps" in metrics
        return new, metrics


class SchedulesTheSkipped(OwnOptimizer):
    kind = Moving


class SkipsInSilence(FakeTraining):
    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        return {name: value for name, value in super().update(batch, objective).items() if name != "skipped_steps"}


class StepsOnNothing(FakeTraining):
    """A step with a gradient of zeros, where nothing is in the loss: moments decay, and push the weights on."""

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        if batch.in_loss.any():
            return super().update(batch, objective)
        zeros = {name: np.zeros(array.shape) for name, array in self.policy.arrays().items()}
        weights, metrics = self.optimizer.step(self.policy.arrays(), zeros)
        self.policy = FakePolicy(*weights.values())
        return {"loss": 0.0, **metrics}


class Restarting(NumpyOptimizer):
    """Its schedule begins anew with each process."""

    begun = 0

    @property
    def rate(self) -> float:
        return learning_rate(self.settings, self.steps - self.begun)

    def restore(self, state: Arrays) -> None:
        super().restore(state)
        self.begun = self.steps


class RestartsTheSchedule(OwnOptimizer):
    kind = Restarting


class ForgetsRandomState(FakeTraining):
    """Dropout, from a generator that is seeded and not saved."""

    def setup(self, context: TrainingContext) -> None:
        super().setup(context)
        self.draws = np.random.default_rng(context.seed)

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        kept = self.draws.random(len(batch.weights)) > 0.2
        return super().update(replace(batch, weights=batch.weights * kept), objective)


STEP_ZOO: dict[type[FakeTraining], tuple[str, str]] = {
    DropsLastMicroBatch: ("test_gradient_does_not_depend_on_the_cut", "gradient norm"),
    StepsOnNan: ("test_a_gradient_that_is_not_finite_is_skipped", "a gradient with nan changed tensor"),
    SpoilsMoments: ("test_a_gradient_that_is_not_finite_is_skipped", "left something behind: the step after it"),
    SchedulesTheSkipped: ("test_a_gradient_that_is_not_finite_is_skipped", "the schedule has moved"),
    SkipsInSilence: ("test_a_gradient_that_is_not_finite_is_skipped", "gave skipped_steps 0.0, 1 is due"),
    StepsOnNothing: ("test_nothing_in_the_loss_is_no_step", "an all-masked batch changed tensor"),
    RestartsTheSchedule: ("test_continues_exactly", "learning rate"),
    ForgetsRandomState: ("test_continues_exactly", "after loading: tensor"),
}
"""Bug -> the rule that is there for it, and what it says."""
