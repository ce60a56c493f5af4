"""Rules of the optimizer.

The suite cannot see a gradient, but it can set its size. At a rate that hardly changes the model, a batch whose loss is c times as large
has a gradient c times as large, for every weight. AdamW divides by the size of the gradients so far, so each weight must move like one
number whose gradients are the factors c themselves. The reference below moves that number. A gradient far below AdamW's epsilon is not
divided by its own size: the first step is then the gradient itself, times rate / epsilon, which gives its norm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlcore.contracts.interfaces import TrainingBackend
from rlcore.contracts.snapshots import WeightsKind
from rlcore.contracts.training_settings import LoraSettings, OptimizerSettings
from rlcore.learning.lr_schedule import Linear
from rlcore.testing.training.trainer_suite import TrainerSuite
from rlcore.testing.weights import handed_out

__all__ = ["OptimizerRules", "adamw_moves"]

_ALLOWED = 0.02
"""Of a move. The model does change a little: a Qwen2 with random weights is 0.005 off after six steps."""
_SLOWER = 0.01
"""Of ``learning_rate``: a rate that hardly changes the model."""
_FEWEST = 8
"""Weights of a tensor that a median is taken of."""
_EPSILON = 1e-8
"""AdamW's, as ``OptimizerSettings`` describes it."""
_SMALL, _LENGTH_ALLOWED = 1e-3, 0.01
"""A gradient's norm, in epsilons: in a step it counts for 0.1 % too little at most. How far the length of that step may be off it."""
_ADAPTERS = LoraSettings(rank=2, alpha=8.0, adapter_only=True)
"""Of a suite whose own context has none."""

WARMUP, TOTAL, FLOOR = 2, 6, 0.2
SHARES = (0.5, 1.0, 1.0, 0.8828427, 0.6, 0.3171573, 0.2, 0.2)
"""Of the learning rate, with these settings: half, whole, then 0.2 + 0.4 (1 + cos(pi k / 4)) for k = 0 … 4, and 0.2 from there on."""

Arrays = Mapping[str, np.ndarray]


def adamw_moves(gradients: Sequence[float], betas: tuple[float, float]) -> np.ndarray:
    """Return float64[K]: the move of a weight with these gradients in each of K steps, in units of the learning rate; without decay and
    epsilon.

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
    """The weights before and after K steps: ``weights`` float64, K + 1 times, by name; ``metrics`` of each step."""

    weights: list[dict[str, np.ndarray]]
    metrics: list[Mapping[str, float]]

    def step(self, number: int, name: str) -> np.ndarray:
        """Return the move of a tensor in step ``number``."""
        return np.asarray(self.weights[number][name] - self.weights[number + 1][name])

    @property
    def pace(self) -> float:
        """By how much the first step moved a weight: the median over those that it moved."""
        moved = np.concatenate([np.abs(self.step(0, name)).reshape(-1) for name in self.weights[0]])
        return float(np.median(moved[moved > 0])) if moved.any() else 0.0

    @property
    def length(self) -> float:
        """Return the length of the first step over all weights; a matrix that is handed out under two names counts once."""
        steps = {step.tobytes(): step for step in (self.step(0, name) for name in self.weights[0])}
        return math.sqrt(sum(float((step**2).sum()) for step in steps.values()))

    def moves(self) -> dict[str, np.ndarray]:
        """Return tensor -> float64[K]: how far each step went in the direction of the first one, the median over the weights that the
        first one moved by the whole pace. The others have a gradient as small as AdamW's epsilon, which may be rounding alone."""
        found = {}
        for name, before in self.weights[0].items():
            first = self.step(0, name)
            firm = np.abs(first) >= 0.98 * self.pace - rounding(before)
            if self.pace and firm.sum() >= _FEWEST:
                signs = np.sign(first[firm])
                found[name] = np.array([np.median(self.step(k, name)[firm] * signs) for k in range(len(self.metrics))])
        return found


def rounding(array: np.ndarray) -> float:
    """Return the largest error of the difference of two such weights that are stored in float32."""
    return float(np.spacing(np.float32(np.abs(array).max(initial=0.0))))


class OptimizerRules(TrainerSuite):
    """The optimizer: AdamW with schedule, betas, clipping and decay, seen in the weights after each step.

    Not checked with ``adamw = False``. A backend that hands out adapters is checked with them too.
    """

    def test_the_rate_follows_the_schedule(self) -> None:
        """The learning rate follows warm-up, cosine and floor, in the metric and in the weights; and another schedule, in the metric."""
        for lora in self._subjects():
            rate = self._slow_rate(lora)
            due = rate * np.array(SHARES)
            walk = self._walked(lora, [1.0] * len(SHARES), rate, warmup_steps=WARMUP, total_steps=TOTAL, min_lr_ratio=FLOOR)
            told = [metrics["learning_rate"] for metrics in walk.metrics]
            for step, (one, other) in enumerate(zip(told, due, strict=True), start=1):
                assert math.isclose(one, other, rel_tol=1e-6), f"step {step} says that its learning rate is {one:.4g}, {other:.4g} is due"
            _check(walk, due, "with the same gradient at every step")
            falling = self._walked(lora, [1.0] * 2, rate, total_steps=4, min_lr_ratio=0.0, schedule=Linear())
            told = [metrics["learning_rate"] / rate for metrics in falling.metrics]
            assert np.allclose(told, (1.0, 0.75), rtol=1e-6), (
                f"with a linear schedule the first two of four steps have {told} of the learning rate, 1.0 and 0.75 are due; ask "
                "rlcore.learning.learning_rate"
            )

    def test_moments_follow_the_betas(self) -> None:
        """With gradients of different sizes, each step has the length of a reference AdamW with the same betas."""
        for lora in self._subjects():
            rate, sizes, betas = self._slow_rate(lora), (1.0, 4.0, 0.25, 2.0), (0.6, 0.8)
            walk = self._walked(lora, sizes, rate, betas=betas)
            _check(walk, rate * adamw_moves(sizes, betas), f"with betas {betas}")

    def test_grad_norm_is_the_length_of_the_whole_gradient(self) -> None:
        """``grad_norm`` is the root of the sum of squares over all tensors, and AdamW's epsilon is 1e-8. A gradient far below epsilon moves
        the weights by rate / epsilon times itself, so the length of the step gives its norm."""
        for lora in self._subjects():
            norm = self._walked(lora, [1.0], self._slow_rate(lora)).metrics[0]["grad_norm"]
            assert norm > 0.0, "an update that moves the weights has grad_norm 0"
            walk = self._walked(lora, [_SMALL * _EPSILON / norm], rate := 10.0)
            told, length = walk.metrics[0]["grad_norm"], walk.length * _EPSILON / rate
            assert math.isclose(told, length, rel_tol=_LENGTH_ALLOWED), (
                f"a gradient with grad_norm {told:.3g} moved the weights as one of norm {length:.3g} does ({told / max(length, 1e-30):.3g} "
                f"times): grad_norm is the root of the sum of squares over all tensors, and AdamW's epsilon is {_EPSILON:g}"
            )

    def test_gradients_are_clipped_by_their_global_norm(self) -> None:
        """A gradient below ``max_grad_norm`` is taken as it is, and a longer one is scaled to that norm in every tensor."""
        for lora in self._subjects():
            rate = self._slow_rate(lora)
            norm = self._walked(lora, [1.0], rate).metrics[0]["grad_norm"]
            walk = self._walked(lora, (1.0, 10.0, 1.0), rate, max_grad_norm=3.0 * norm)
            told = [metrics["grad_norm"] / norm for metrics in walk.metrics]
            assert np.allclose(told, (1.0, 10.0, 1.0), rtol=0.1), f"gradients of 1, 10 and 1 times a norm have grad_norm {told} times it"
            _check(
                walk, rate * adamw_moves((1.0, 3.0, 1.0), OptimizerSettings(learning_rate=rate).betas), "with the second gradient clipped"
            )

    def test_matrices_decay_and_vectors_do_not(self) -> None:
        """``weight_decay`` takes rate * weight_decay * W from each tensor of two or more axes, and nothing from biases and norms."""
        decay, warmup = 1.0, {"warmup_steps": 2, "total_steps": 8}
        for lora in self._subjects():
            model = self._without_zeros() if lora is None else self.context().model
            plain, other = (self._walked(lora, [1.0], self.learning_rate, model, weight_decay=each, **warmup) for each in (0.0, decay))
            for name in plain.weights[0]:
                # A tensor that no gradient reaches need not decay; of adapters one matrix has a gradient of zeros, and decays.
                if lora is not None or plain.step(0, name).any():
                    _check_decay(name, plain, other, decay)

    def _subjects(self) -> list[LoraSettings | None]:
        """Return the subjects of the rules: None for the whole model, and adapters. Return nothing if steps cannot be seen: another
        optimizer, adapters that are handed out merged alone, no precision that shows a step."""
        capabilities, own = self.make(self.context()).capabilities, self.context().lora
        if not self.adamw or not self.full_precision():
            return []
        adapter_only = capabilities.lora and WeightsKind.ADAPTER in capabilities.kinds
        if own is not None:
            return [replace(own, adapter_only=True)] if adapter_only else []
        return [None, _ADAPTERS] if adapter_only else [None]

    def _slow_rate(self, lora: LoraSettings | None) -> float:
        """Return a rate that hardly changes the model; adapters count ``alpha / rank`` times in it."""
        return self.learning_rate * _SLOWER / max(1.0, lora.alpha / lora.rank if lora else 1.0)

    def _without_zeros(self) -> str:
        """Return the model after two steps, in a folder: biases that begin at zero would not show that they decay."""
        folder = self.scratch / "stepped"
        if not folder.is_dir():
            folder.mkdir()
            backend = self.ready(dtype=self.full_precision())
            for seed in range(2):
                backend.update(self.batch(seed=seed), self.objective())
            if (saving := backend.save_model(folder)) is not None:
                saving.result()
            backend.close()
        return str(folder)

    def _walked(self, lora: LoraSettings | None, sizes: Sequence[float], rate: float, model: str = "", **settings: Any) -> Walk:
        """Take a step with a gradient of each size, at a constant rate, without clipping and decay unless ``settings`` of
        ``OptimizerSettings`` say otherwise. With adapters, the weights are their matrices."""
        defaults = {"weight_decay": 0.0, "max_grad_norm": 1e9, "min_lr_ratio": 1.0, "total_steps": 100}
        optimizer = OptimizerSettings(learning_rate=rate, **{**defaults, **settings})
        context = replace(self.context(), dtype=self.full_precision(), optimizer=optimizer, lora=lora)
        context = replace(context, model=model or context.model)
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
    """Assert that each step moves each weight as far as ``due``, float64[K]."""
    found = walk.moves()
    assert found, "no step moved as many as 8 weights of a tensor alike, as the first one of AdamW does"
    for name, moves in found.items():
        slack = _ALLOWED * due + rounding(walk.weights[0][name])
        for step in np.flatnonzero(np.abs(moves - due) > slack):
            raise AssertionError(
                f"{what}, step {step + 1} moved tensor {name!r} by {moves[step]:.3g}, and AdamW moves it by {due[step]:.3g} "
                f"({moves[step] / due[step]:.3g} times what is due)"
            )


def _check_decay(name: str, plain: Walk, other: Walk, decay: float) -> None:
    """Check the first step of ``other`` against that of ``plain``, which has no decay."""
    before, rate = plain.weights[0][name], plain.metrics[0]["learning_rate"]
    share = rate * decay if before.ndim > 1 else 0.0
    taken = other.step(0, name) - plain.step(0, name)
    # Some take the decay before the step, and some after it.
    allowed = _ALLOWED * share * np.abs(before) + share * rate + 4 * rounding(before)
    found = float((taken * before).sum() / (before**2).sum()) if before.any() else float("nan")
    assert (np.abs(taken - share * before) <= allowed).all(), (
        f"weight_decay {decay} took {found:.3g} of tensor {name!r}, of shape {before.shape}, and {share:.3g} is due: matrices lose "
        "rate * weight_decay of themselves, biases and norms nothing"
    )
