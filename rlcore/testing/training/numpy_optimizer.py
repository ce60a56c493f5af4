"""AdamW and plain SGD over named numpy arrays, with the schedule that ``OptimizerSettings`` describes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rlcore.contracts.training_settings import OptimizerSettings
from rlcore.learning.lr_schedule import learning_rate

__all__ = ["NumpyOptimizer"]


class NumpyOptimizer:
    """Decoupled weight decay, global norm clipping; ``adaptive=False`` is SGD. State in float64, weights float32."""

    epsilon = 1e-8

    def __init__(self, settings: OptimizerSettings, weights: Mapping[str, np.ndarray], adaptive: bool = True) -> None:
        self.settings = settings
        self.adaptive = adaptive
        self.steps = 0
        self.first = {name: np.zeros(array.shape) for name, array in weights.items()}
        self.second = {name: np.zeros(array.shape) for name, array in weights.items()}

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return learning_rate(self.settings, self.steps)

    def step(self, weights: Mapping[str, np.ndarray], gradient: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Return new weights, and ``grad_norm`` (before clipping), ``learning_rate``, and ``skipped_steps`` if the gradient was not
        finite."""
        norm = self.norm(gradient)
        limit = self.settings.max_grad_norm
        scale = limit / norm if 0.0 < limit < norm else 1.0
        rate = self.rate
        if not math.isfinite(norm):
            return dict(weights), {"grad_norm": norm, "learning_rate": rate, "skipped_steps": 1.0}
        self.steps += 1
        new = {name: self._moved(name, array, gradient[name] * scale, rate) for name, array in weights.items()}
        return new, {"grad_norm": norm, "learning_rate": rate}

    def norm(self, gradient: Mapping[str, np.ndarray]) -> float:
        """Return the root of the sum of squares, over all arrays."""
        return math.sqrt(sum(float((array**2).sum()) for array in gradient.values()))

    def _moved(self, name: str, weight: np.ndarray, gradient: np.ndarray, rate: float) -> np.ndarray:
        direction = self._adam(name, gradient) if self.adaptive else gradient
        decayed = weight.astype(np.float64) * (1.0 - rate * self.settings.weight_decay)
        return np.asarray((decayed - rate * direction).astype(np.float32))

    def _adam(self, name: str, gradient: np.ndarray) -> np.ndarray:
        """Return the direction of Kingma & Ba, 2015, algorithm 1, with bias correction."""
        low, high = self.settings.betas
        self.first[name] = low * self.first[name] + (1.0 - low) * gradient
        self.second[name] = high * self.second[name] + (1.0 - high) * gradient**2
        mean = self.first[name] / (1.0 - low**self.steps)
        square = self.second[name] / (1.0 - high**self.steps)
        return np.asarray(mean / (np.sqrt(square) + self.epsilon))

    def state(self) -> dict[str, np.ndarray]:
        """Return all that an exact continuation needs."""
        moments = {f"first/{name}": array for name, array in self.first.items()}
        moments |= {f"second/{name}": array for name, array in self.second.items()}
        return moments | {"steps": np.array(self.steps)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over the values that ``state`` gave, bit for bit."""
        self.steps = int(state["steps"])
        self.first = {name: state[f"first/{name}"] for name in self.first}
        self.second = {name: state[f"second/{name}"] for name in self.second}
