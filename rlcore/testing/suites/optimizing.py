"""Rules of the optimizer: AdamW as ``OptimizerSettings`` describes it, seen in the weights that leave the trainer.

The suite cannot see a gradient, but it can set its size. At a rate that hardly changes the model, a batch whose loss is c times as large
has a gradient c times as large, for every weight. AdamW divides by the size of the gradients so far, so each weight must move like one
number whose gradients are the factors c themselves. The reference below moves that number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlcore.contracts.interfaces import TrainingBackend
from rlcore.contracts.snapshots import WeightsKind
from rlcore.contracts.training_settings import OptimizerSettings
from rlcore.testing.suites.trainer import TrainerSuite
from rlcore.testing.weights import handed_out

__all__ = ["OptimizerRules", "adamw_moves"]

_ALLOWED = 0.02
"""Of a move. The model does change a little: a Qwen2 with random weights is 0.005 off after six steps."""
_SLOWER = 0.01
"""Of ``learning_rate``: a rate that hardly changes the model."""
_FEWEST = 8
"""Weights of a tensor that a median is taken of."""

WARMUP, TOTAL, FLOOR = 2, 6, 0.2
SHARES = (0.5, 1.0, 1.0, 0.8828427, 0.6, 0.3171573, 0.2, 0.2)
"""Of the learning rate, with these settings: half, whole, then 0.2 + 0.4 (1 + cos(pi k / 4)) for k = 0 … 4, and 0.2 from there on."""

Arrays = Mapping[str, np.ndarray]


def adamw_moves(gradients: Sequence[float], betas: tuple[float, float]) -> np.ndarray:
    """float64[K]: what each of K steps takes from a weight with these gradients, in units of the learning rate; without decay and epsilon.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (arXiv 1711.05101), algorithm 2, lines 6 to 12.
    """
    low, high = betas
    first = second = 0.0
    moves = []
    for step, gradient in enumerate(gradients, start=1):
        first = low * first + (1 - low) * gradient
        second = high * second + (1 - high) * gradient**2
        moves.append(first / (1 - low**step) / math.sqrt(second / (1 - high**step)))
    return np.array(moves)


@dataclass(frozen=True)
class Walk:
    """What K steps made of the weights: ``weights`` float64, K + 1 times, by name; ``metrics`` of each step."""

    weights: list[dict[str, np.ndarray]]
    metrics: list[Mapping[str, float]]

    def step(self, number: int, name: str) -> np.ndarray:
        """What step ``number`` took from a tensor."""
        return np.asarray(self.weights[number][name] - self.weights[number + 1][name])

    @property
    def pace(self) -> float:
        """By how much the first step moved a weight: the median over those that it moved."""
        moved = np.concatenate([np.abs(self.step(0, name)).reshape(-1) for name in self.weights[0]])
        return float(np.median(moved[moved > 0])) if moved.any() else 0.0

    def moves(self) -> dict[str, np.ndarray]:
        """Tensor -> float64[K]: how far each step went on in the direction of the first one, the median over the weights that the first one
        moved by the whole pace. The others have a gradient as small as AdamW's epsilon, which may be rounding alone."""
        found = {}
        for name, before in self.weights[0].items():
            first = self.step(0, name)
            firm = np.abs(first) >= 0.98 * self.pace - rounding(before)
            if self.pace and firm.sum() >= _FEWEST:
                signs = np.sign(first[firm])
                found[name] = np.array([np.median(self.step(k, name)[firm] * signs) for k in range(len(self.metrics))])
        return found


def rounding(array: np.ndarray) -> float:
    """By how much the difference of two such weights may be off that are stored in float32."""
    return float(np.spacing(np.float32(np.abs(array).max(initial=0.0))))


class OptimizerRules(TrainerSuite):
    """Schedule, betas, clipping and decay, with ``adamw``."""

    def test_the_rate_follows_the_schedule(self) -> None:
        """Warm-up, cosine, floor: in the metric, and in the weights. With one gradient at every step AdamW moves each weight by the rate,
        whatever the betas."""
        rate = self.learning_rate * _SLOWER
        due = rate * np.array(SHARES)
        walk = self._walked([1.0] * len(SHARES), rate, warmup_steps=WARMUP, total_steps=TOTAL, min_lr_ratio=FLOOR)
        if walk is None:
            return
        told = [metrics["learning_rate"] for metrics in walk.metrics]
        for step, (one, other) in enumerate(zip(told, due, strict=True), start=1):
            assert math.isclose(one, other, rel_tol=1e-6), f"step {step} says that its learning rate is {one:.4g}, {other:.4g} is due"
        _check(walk, due, "with the same gradient at every step")

    def test_moments_follow_the_betas(self) -> None:
        """Gradients of 1, 4, 1/4 and 2 times the first one: each step is as long as that of a reference with these betas."""
        rate, sizes, betas = self.learning_rate * _SLOWER, (1.0, 4.0, 0.25, 2.0), (0.6, 0.8)
        walk = self._walked(sizes, rate, betas=betas)
        if walk is not None:
            _check(walk, rate * adamw_moves(sizes, betas), f"with betas {betas}")

    def test_gradients_are_clipped_by_their_global_norm(self) -> None:
        """A gradient below ``max_grad_norm`` is taken as it is; one of ten times that norm counts for three times, in every tensor, where
        three times is the limit."""
        rate = self.learning_rate * _SLOWER
        free = self._walked([1.0], rate)
        if free is None:
            return
        norm = free.metrics[0]["grad_norm"]
        walk = self._walked((1.0, 10.0, 1.0), rate, max_grad_norm=3.0 * norm)
        assert walk is not None
        told = [metrics["grad_norm"] / norm for metrics in walk.metrics]
        assert np.allclose(told, (1.0, 10.0, 1.0), rtol=0.1), f"gradients of 1, 10 and 1 times a norm have grad_norm {told} times it"
        _check(walk, rate * adamw_moves((1.0, 3.0, 1.0), OptimizerSettings(learning_rate=rate).betas), "with the second gradient clipped")

    def test_matrices_decay_and_vectors_do_not(self) -> None:
        """``weight_decay`` takes rate * weight_decay * W from each W of two or more axes, beside what the gradient takes, and nothing from
        biases and norms. The rate is that of the step, as it is told, in warm-up too."""
        decay, warmup = 1.0, {"warmup_steps": 2, "total_steps": 8}
        walks = [self._walked([1.0], self.learning_rate, weight_decay=each, **warmup) for each in (0.0, decay)]
        plain, other = walks
        if plain is None or other is None:
            return
        rate = plain.metrics[0]["learning_rate"]
        for name, before in plain.weights[0].items():
            if self.context().lora is None and not plain.step(0, name).any():
                continue  # frozen, or without a gradient; of adapters one matrix has a gradient of zeros, and decays
            share = rate * decay if before.ndim > 1 else 0.0
            taken = other.step(0, name) - plain.step(0, name)
            # Some take the decay before the step, and some after it.
            allowed = _ALLOWED * share * np.abs(before) + share * rate + 4 * rounding(before)
            found = float((taken * before).sum() / (before**2).sum()) if before.any() else float("nan")
            assert (np.abs(taken - share * before) <= allowed).all(), (
                f"weight_decay {decay} took {found:.3g} of tensor {name!r}, of shape {before.shape}, and {share:.3g} is due: matrices lose "
                "rate * weight_decay of themselves, biases and norms nothing"
            )

    def _walked(self, sizes: Sequence[float], rate: float, **settings: Any) -> Walk | None:
        """A step with a gradient of each size, at a constant rate, without clipping and decay unless ``settings`` of ``OptimizerSettings``
        say otherwise. Of a suite with adapters, the weights are their matrices. None if there is nothing to see: another optimizer, merged
        adapters, no precision that shows a step."""
        context = self.context()
        capabilities, lora = self.make(context).capabilities, context.lora and replace(context.lora, travels=True)
        dtype = next((each for each in ("float32", "float64") if each in capabilities.dtypes), "")
        if not self.adamw or not dtype or (lora and WeightsKind.ADAPTER not in capabilities.kinds):
            return None
        defaults = {"weight_decay": 0.0, "max_grad_norm": 1e9, "min_lr_ratio": 1.0, "total_steps": 100}
        optimizer = OptimizerSettings(learning_rate=rate, **{**defaults, **settings})
        context = replace(context, dtype=dtype, optimizer=optimizer, lora=lora)
        backend, batch = self.make(context), self.batch()
        backend.setup(context)
        walk = Walk([_exact(backend)], [])
        for size in sizes:
            # The loss is a sum with these weights, so it grows with them, and so does its gradient.
            scaled = replace(batch, weights=batch.weights * np.float32(size))
            walk.metrics.append(backend.update(scaled, self.objective()))
            walk.weights.append(_exact(backend))
        backend.close()
        return walk


def _exact(backend: TrainingBackend) -> dict[str, np.ndarray]:
    return {name: np.asarray(tensor.data, np.float64) for name, tensor in handed_out(backend).items()}


def _check(walk: Walk, due: np.ndarray, what: str) -> None:
    """``due`` float64[K]: how far each step is to move each weight."""
    found = walk.moves()
    assert found, "no step moved as many as 8 weights of a tensor alike, as the first one of AdamW does"
    for name, moves in found.items():
        slack = _ALLOWED * due + rounding(walk.weights[0][name])
        for step in np.flatnonzero(np.abs(moves - due) > slack):
            raise AssertionError(
                f"{what}, step {step + 1} moved tensor {name!r} by {moves[step]:.3g}, and AdamW moves it by {due[step]:.3g} "
                f"({moves[step] / due[step]:.3g} times what is due)"
            )
