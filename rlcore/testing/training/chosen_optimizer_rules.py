"""Rules of a trainer that steps with the optimizer of a plugin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rlcore.contracts.training_settings import LoraSettings, OptimizerSettings
from rlcore.testing.algorithms.fake_optimizer import MOMENTUM, FakeOptimizer
from rlcore.testing.training.optimizer_rules import OptimizerRules, Walk
from rlcore.testing.weights import weights_of

if TYPE_CHECKING:
    import torch

__all__ = ["ChosenOptimizerRules"]

_LENGTH = 1e-3
"""Of the first step, over all weights: little enough that the next gradients are those of the first step."""
_ALLOWED = 0.05
"""Of a length. The gradient does change a little, and weights are rounded to float32."""
_SHARES = (0.5, 1.0, 1.0)
"""Of the learning rate, with a warm-up of two steps."""
_PUSHES = tuple(sum(MOMENTUM**age for age in range(step + 1)) for step in range(len(_SHARES)))
"""The momentum after each step, in gradients."""


class Noting(FakeOptimizer):
    """Keeps the names that the trainer gave."""

    def __init__(self, fast: Set[str] = frozenset()) -> None:
        super().__init__(fast)
        self.names: list[str] = []
        self.tables: Set[str] = frozenset()

    def build(
        self, parameters: Mapping[str, torch.nn.Parameter], settings: OptimizerSettings, *, tables: Set[str]
    ) -> Sequence[torch.optim.Optimizer]:
        """See OptimizerFactory."""
        self.names, self.tables = list(parameters), tables
        return super().build(parameters, settings, tables=tables)


class ChosenOptimizerRules(OptimizerRules):
    """A chosen optimizer, ``OptimizerSettings.optimizer``: SGD with momentum, seen in the weights after each step.

    Not checked if ``capabilities.optimizers`` is False. A backend that hands out adapters is checked with them too.
    """

    def test_a_chosen_optimizer_takes_the_steps(self) -> None:
        """Steps are those of the chosen optimizer, at the rate of the schedule."""
        for lora in self._steppers():
            rate = self._rate(lora)
            walk = self._walked(lora, [1.0] * len(_SHARES), rate, optimizer=Noting(), warmup_steps=2)
            norm = walk.metrics[0]["grad_norm"]
            for step, push in enumerate(_PUSHES):
                due, found = rate * _SHARES[step] * push * norm, _length(walk, step)
                assert math.isclose(found, due, rel_tol=_ALLOWED), (
                    f"step {step + 1} has length {found:.3g}, and SGD with momentum {MOMENTUM} takes one of {due:.3g}: build the optimizer "
                    "of OptimizerSettings.optimizer, and set the rate of its groups before each step"
                )

    def test_a_chosen_optimizer_scales_the_rate_of_a_group(self) -> None:
        """A group with ``lr_scale`` 2 steps twice as far; the names are those of the weights that are handed out, without adapters."""
        if None not in self._steppers():
            return
        rate, plain = self._rate(None), Noting()
        walk = self._walked(None, [1.0], rate, optimizer=plain)
        strange = sorted(set(plain.names) - walk.weights[0].keys())
        assert not strange, f"build() got parameters by other names than those of the weights: {strange}"
        assert plain.tables <= set(plain.names), f"tables has {sorted(plain.tables)}, of which some are not parameters"
        fast = max(plain.names, key=lambda name: float(np.abs(walk.step(0, name)).sum()))
        scaled = self._walked(None, [1.0], rate, optimizer=Noting({fast}))
        for name in plain.names:
            times = _along(scaled.step(0, name), walk.step(0, name))
            due = 2.0 if name == fast else 1.0
            assert math.isclose(times, due, rel_tol=_ALLOWED), f"tensor {name!r} moved {times:.3g} times as far, {due} is due by lr_scale"

    def test_a_chosen_optimizer_continues_exactly(self) -> None:
        """A trainer that loads a checkpoint continues with the same bits: the state of the optimizer is part of it."""
        if not self._steppers():
            return
        optimizer = replace(self.context().optimizer, optimizer=FakeOptimizer(), learning_rate=self._rate(self.context().lora))
        straight = self.ready(optimizer=optimizer)
        for seed in range(2):
            straight.update(self.batch(seed=seed), self.objective())
        model, state = self.scratch / "chosen-model", self.scratch / "chosen-state"
        for folder in (model, state):
            folder.mkdir()
        for saving in (straight.save_model(model), straight.save(state)):
            if saving is not None:
                saving.result()
        resumed = self.ready(model=str(model), optimizer=optimizer)
        resumed.load(state)
        for trainer in (straight, resumed):
            trainer.update(self.batch(seed=2), self.objective())
        theirs = weights_of(resumed)
        for name, tensor in weights_of(straight).items():
            assert tensor.checksum == theirs[name].checksum, f"after loading, a step of a chosen optimizer left tensor {name!r} otherwise"

    def _steppers(self) -> list[LoraSettings | None]:
        return self._subjects() if self.make(self.context()).capabilities.optimizers else []

    def _rate(self, lora: LoraSettings | None) -> float:
        """Return the rate at which the first step has ``_LENGTH``."""
        norm = self._walked(lora, [1.0], self._slow_rate(lora)).metrics[0]["grad_norm"]
        return _LENGTH / norm


def _length(walk: Walk, step: int) -> float:
    """Return the length of a step over all weights; a matrix that is handed out under two names counts once."""
    steps = {move.tobytes(): move for move in (walk.step(step, name) for name in walk.weights[0])}
    return math.sqrt(sum(float((move**2).sum()) for move in steps.values()))


def _along(move: np.ndarray, other: np.ndarray) -> float:
    """Return how many times as far as ``other`` a move goes in its direction; 1 if neither moves."""
    square = float((other**2).sum())
    return float((move * other).sum()) / square if square else 1.0 + float(np.abs(move).max())
