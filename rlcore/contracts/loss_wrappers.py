"""What the core applies around a loss, as a plugin implements it: aggregations, KL estimators, mismatch corrections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

import numpy as np

from rlcore.contracts.batches import LossBatch, Normalisers
from rlcore.contracts.from_spec import FromSpec
from rlcore.contracts.specs import CorrectionSpec

if TYPE_CHECKING:
    import torch

__all__ = ["Aggregation", "Correction", "KlEstimator"]


class Aggregation(ABC):
    """From a loss per token to one number, ``sum(weights * per_token)``: weights that are fixed before the first forward."""

    @abstractmethod
    def weights(self, lengths: np.ndarray, in_loss: np.ndarray, group: np.ndarray, normalisers: Normalisers) -> np.ndarray:
        """float64[N]: the weight of each policy token of one optimizer step. What is outside the loss weighs 0, whatever stands there.

        :param lengths: int64[R], policy tokens of each rollout; they follow each other on the axis [N].
        :param in_loss: bool[R], rollouts that train.
        :param group: int64[R], the number of the rollout's group.
        :param normalisers: counts over the same rollouts.
        """


class KlEstimator(ABC):
    """KL(policy || reference) per token, from the log probabilities of the tokens taken; finite however far the two are apart."""

    @abstractmethod
    def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """[n], [n] -> [n], differentiable in ``logprobs``; in float64 it goes into the reward."""

    def penalty(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """What goes into the loss: the value of ``estimate``, with the gradient that it is to have there."""
        return self.estimate(logprobs, reference)


class Correction(FromSpec, ABC, described_by=CorrectionSpec):
    """A weight for data of another policy, which multiplies the loss and not the penalties. Made as ``target(bounds)`` or
    ``target(bounds, options)``: ``bounds`` is (low, high) of ``algorithm.mismatch_range``, (0, inf) if there is none. ``per``,
    ``usual_range`` and ``masks``: see ``CorrectionSpec``."""

    per: Literal["rollout", "token"] = "token"
    usual_range: tuple[float, ...] = ()
    masks: bool = False

    @abstractmethod
    def weights(self, batch: LossBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """[n] weight of each token, finite, without gradient, from ``old_logprobs`` and ``rollout_logprobs``; bool[n], where its bounds
        acted. A micro-batch holds whole rollouts, and other rollouts must not matter."""
