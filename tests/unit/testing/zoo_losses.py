"""Losses with one planted bug each in what they keep between updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rlcore.contracts.batches import LossBatch
from rlcore.testing.algorithms.fake_algorithms import FakeLoss


class Adapts(FakeLoss):
    """Its scale follows the mean advantage. Without a bug, in itself."""

    scale = 1.0

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        return super().per_token(logprobs, batch) * self.scale

    def updated(self, figures: Mapping[str, float]) -> None:
        self.scale = 0.5 * self.scale + figures.get("advantage_abs_mean", 0.0)

    def state(self) -> Mapping[str, np.ndarray | float]:
        return {"scale": self.scale}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.scale = float(state["scale"])


class KeepsItsScale(Adapts):
    """It changes with updates, and a resumed run starts anew."""

    def state(self) -> Mapping[str, np.ndarray | float]:
        return {}


class CountsUpdatesInSecret(Adapts):
    """Its scale is saved, and the number of updates that it divides by is not."""

    updates = 0

    def updated(self, figures: Mapping[str, float]) -> None:
        self.updates += 1
        self.scale += figures.get("advantage_abs_mean", 0.0) / self.updates


class SavesTheFigures(Adapts):
    last: Mapping[str, float] = {}

    def updated(self, figures: Mapping[str, float]) -> None:
        self.last = figures

    def state(self) -> Mapping[str, Any]:
        return {"last": np.array([self.last], object)}


class WantsEveryFigure(Adapts):
    def updated(self, figures: Mapping[str, float]) -> None:
        self.scale = figures["advantage_abs_mean"]
