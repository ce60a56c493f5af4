"""The functions that the core applies around a loss, as plugins implement them: aggregations, KL estimators, mismatch corrections."""

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
    """A rule that reduces a loss per token to one number, ``sum(weights * per_token)``. The weights are fixed before the first forward."""

    @abstractmethod
    def weights(self, lengths: np.ndarray, in_loss: np.ndarray, group: np.ndarray, normalisers: Normalisers) -> np.ndarray:
        """Return float64[N]: the weight of each policy token of one optimizer step.

        The core sets the weights of tokens outside the loss to 0.

        :param lengths: int64[R], policy tokens of each rollout. The rollouts follow each other on the axis [N].
        :param in_loss: bool[R], True for the rollouts that train.
        :param group: int64[R], the group number of each rollout.
        :param normalisers: counts over the same rollouts.
        """


class KlEstimator(ABC):
    """An estimator of KL(policy || reference) per token, from the log probabilities of the sampled tokens.

    The result must be finite however far the two models are apart.
    """

    @abstractmethod
    def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """Return the estimate: [n], [n] -> [n], differentiable in ``logprobs``.

        The inputs are float64 if the estimate goes into the reward.
        """

    def penalty(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """Return the term that goes into the loss: the value of ``estimate``, with the gradient that it should have in the loss."""
        return self.estimate(logprobs, reference)


class Correction(FromSpec, ABC, described_by=CorrectionSpec):
    """A weight for data that another policy sampled. It multiplies the loss, but not the penalties.

    Made as ``target(bounds)`` or ``target(bounds, options)``. ``bounds`` is the pair (low, high) of ``algorithm.mismatch_range``, or
    (0, inf) if there is none. ``CorrectionSpec`` explains ``per``, ``usual_range`` and ``masks``.
    """

    per: Literal["rollout", "token"] = "token"
    usual_range: tuple[float, ...] = ()
    masks: bool = False

    @abstractmethod
    def weights(self, batch: LossBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weight [n] of each token, finite and without gradient, and bool[n], True for the tokens on which the bounds acted.

        The weights are computed from ``old_logprobs`` and ``rollout_logprobs``. With ``per = "rollout"``, a micro-batch holds whole
        rollouts, and a rollout's weights must not depend on other rollouts. Otherwise the weight of a token depends on that token alone.
        """
