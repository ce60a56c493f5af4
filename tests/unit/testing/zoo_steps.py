"""Trainers whose steps, or whose way back from a checkpoint, have one planted bug each."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import Objective, TrainingContext
from rlcore.learning import learning_rate
from rlcore.testing import FakePolicy, FakeTraining
from rlcore.testing.training.numpy_optimizer import NumpyOptimizer

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


class IgnoresSettings(FakeTraining):
    """A fake trainer whose optimizer has other settings than it was given."""

    instead: ClassVar[Mapping[str, Any]] = {}

    def setup(self, context: TrainingContext) -> None:
        super().setup(context)
        self.optimizer.settings = replace(self.optimizer.settings, **self.instead)


class NeverClips(IgnoresSettings):
    instead: ClassVar = {"max_grad_norm": 0.0}


class IgnoresBetas(IgnoresSettings):
    instead: ClassVar = {"betas": (0.9, 0.999)}


class NeverDecays(IgnoresSettings):
    instead: ClassVar = {"weight_decay": 0.0}


class NeverWarmsUp(IgnoresSettings):
    instead: ClassVar = {"warmup_steps": 0}


class KnowsCosinesAlone(IgnoresSettings):
    instead: ClassVar = {"schedule": None}


class Hasty(NumpyOptimizer):
    """Tells the rate of the schedule, and takes the whole one."""

    def _moved(self, name: str, weight: np.ndarray, gradient: np.ndarray, rate: float) -> np.ndarray:
        return super()._moved(name, weight, gradient, self.settings.learning_rate)


class TellsTheScheduleAlone(OwnOptimizer):
    kind = Hasty


class Uncorrected(NumpyOptimizer):
    """The first steps are short: moments begin at zero, and nothing makes up for it."""

    def _adam(self, name: str, gradient: np.ndarray) -> np.ndarray:
        low, high = self.settings.betas
        scale = (1.0 - low**self.steps) / np.sqrt(1.0 - high**self.steps)
        return np.asarray(super()._adam(name, gradient) * scale)


class CorrectsNoBias(OwnOptimizer):
    kind = Uncorrected


class ClippingEach(NumpyOptimizer):
    """Each tensor is clipped by its own norm."""

    def _moved(self, name: str, weight: np.ndarray, gradient: np.ndarray, rate: float) -> np.ndarray:
        norm = float(np.sqrt((gradient**2).sum()))
        return super()._moved(name, weight, gradient * min(1.0, self.limit / norm) if norm else gradient, rate)

    def step(self, weights: Arrays, gradient: Arrays) -> Stepped:
        given = self.settings
        self.limit, self.settings = given.max_grad_norm, replace(given, max_grad_norm=0.0)
        stepped = super().step(weights, gradient)
        self.settings = given
        return stepped


class ClipsEachTensor(OwnOptimizer):
    kind = ClippingEach


class Halving(NumpyOptimizer):
    """Its norm is half the norm."""

    def norm(self, gradient: Arrays) -> float:
        return super().norm(gradient) / 2


class HalvesTheNorm(OwnOptimizer):
    kind = Halving


class Largest(NumpyOptimizer):
    """Its norm is the largest entry."""

    def norm(self, gradient: Arrays) -> float:
        return max(float(np.abs(array).max()) for array in gradient.values())


class TakesTheLargestEntry(OwnOptimizer):
    kind = Largest


class Partial(NumpyOptimizer):
    """One tensor is not in its norm."""

    def norm(self, gradient: Arrays) -> float:
        return super().norm(dict(list(gradient.items())[1:]))


class ForgetsATensorInTheNorm(OwnOptimizer):
    kind = Partial


class Rough(NumpyOptimizer):
    epsilon = 1e-6


class HasAnotherEpsilon(OwnOptimizer):
    kind = Rough


class FreezesATable(FakeTraining):
    """Nobody gave this one to the optimizer."""

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        last, metrics = self.policy.last, super().update(batch, objective)
        self.policy = FakePolicy(last, self.policy.pair)
        return metrics


class LoadsWhatItCan(FakeTraining):
    """A state that it cannot read is none."""

    def load(self, folder: Path) -> None:
        with suppress(Exception):
            super().load(folder)


class Coupled(NumpyOptimizer):
    """Decay is added to the gradient, as Adam had it before AdamW."""

    def _moved(self, name: str, weight: np.ndarray, gradient: np.ndarray, rate: float) -> np.ndarray:
        given = self.settings
        self.settings = replace(given, weight_decay=0.0)
        moved = super()._moved(name, weight, gradient + given.weight_decay * weight, rate)
        self.settings = given
        return moved


class CouplesDecay(OwnOptimizer):
    kind = Coupled


STEP_ZOO: dict[type[FakeTraining], tuple[str, str]] = {
    DropsLastMicroBatch: ("test_gradient_does_not_depend_on_the_cut", "gradient norm"),
    StepsOnNan: ("test_a_gradient_that_is_not_finite_is_skipped", "a gradient with nan changed tensor"),
    SpoilsMoments: ("test_a_gradient_that_is_not_finite_is_skipped", "left something behind: the step after it"),
    SchedulesTheSkipped: ("test_a_gradient_that_is_not_finite_is_skipped", "the schedule has moved"),
    SkipsInSilence: ("test_a_gradient_that_is_not_finite_is_skipped", "gave skipped_steps 0.0, 1 is due"),
    StepsOnNothing: ("test_nothing_in_the_loss_is_no_step", "an all-masked batch changed tensor"),
    RestartsTheSchedule: ("test_continues_exactly", "learning rate"),
    ForgetsRandomState: ("test_continues_exactly", "after loading: tensor"),
    NeverWarmsUp: ("test_the_rate_follows_the_schedule", "step 1 says that its learning rate is"),
    KnowsCosinesAlone: ("test_the_rate_follows_the_schedule", "with a linear schedule"),
    TellsTheScheduleAlone: ("test_the_rate_follows_the_schedule", r"step 1 moved tensor .* \(2 times what is due"),
    CorrectsNoBias: ("test_the_rate_follows_the_schedule", r"step 1 moved tensor .* \(0.447 times what is due"),
    IgnoresBetas: ("test_moments_follow_the_betas", "step 2 moved tensor"),
    NeverClips: ("test_gradients_are_clipped_by_their_global_norm", "step 2 moved tensor"),
    ClipsEachTensor: ("test_gradients_are_clipped_by_their_global_norm", "step 2 moved tensor"),
    HalvesTheNorm: ("test_grad_norm_is_the_length_of_the_whole_gradient", r"does \(0\.5 times"),
    TakesTheLargestEntry: ("test_grad_norm_is_the_length_of_the_whole_gradient", r"does \(0\.\d+ times"),
    ForgetsATensorInTheNorm: ("test_grad_norm_is_the_length_of_the_whole_gradient", r"does \(0\.\d+ times"),
    HasAnotherEpsilon: ("test_grad_norm_is_the_length_of_the_whole_gradient", r"does \((99|100|1e\+02)"),
    FreezesATable: ("test_every_weight_is_trained", r"did not move \['last.weight'\]"),
    LoadsWhatItCan: ("test_a_damaged_state_is_refused", "load took a state that lacks fake_trainer.npz"),
    NeverDecays: ("test_matrices_decay_and_vectors_do_not", "took 0 of tensor 'last.weight'"),
    CouplesDecay: ("test_matrices_decay_and_vectors_do_not", "of tensor 'last.weight'"),
}
"""Bug -> the rule that is there for it, and what it says."""
