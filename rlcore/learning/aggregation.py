"""The reduction of a loss per token to one number: the weight of each token, including the normalisers of the whole optimizer step.

The weights are fixed before the first forward. The loss of any share of the batch is ``sum(weights * per_token)``, and shares add up.
"""

from __future__ import annotations

import numpy as np

from rlcore.contracts.batches import Normalisers
from rlcore.contracts.errors import RunError
from rlcore.contracts.loss_wrappers import Aggregation
from rlcore.registry.error_context import error_context

__all__ = ["ConstantLength", "SampleLevel", "TokenLevel", "count", "token_weights"]


class TokenLevel(Aggregation):
    """1 / tokens: the mean over all tokens of the step, so long rollouts weigh more (DAPO, arXiv 2503.14476, section 3.3)."""

    def weights(self, lengths: np.ndarray, in_loss: np.ndarray, group: np.ndarray, normalisers: Normalisers) -> np.ndarray:
        return np.full(int(lengths.sum()), 1.0 / max(normalisers.tokens, 1))


class SampleLevel(Aggregation):
    """1 / (rollouts x tokens of its rollout): the mean over the tokens of a rollout, then over rollouts.

    Source: GRPO (arXiv 2402.03300), equation 3.
    """

    def weights(self, lengths: np.ndarray, in_loss: np.ndarray, group: np.ndarray, normalisers: Normalisers) -> np.ndarray:
        return np.repeat(1.0 / (max(normalisers.rollouts, 1) * np.maximum(lengths, 1)), lengths)


class ConstantLength(Aggregation):
    """1 / (rollouts x ``max_new_tokens``): the sum over the tokens of a rollout / that length, then the mean over rollouts.

    Source: Dr. GRPO (arXiv 2503.20783), appendix A.
    """

    def weights(self, lengths: np.ndarray, in_loss: np.ndarray, group: np.ndarray, normalisers: Normalisers) -> np.ndarray:
        return np.full(int(lengths.sum()), 1.0 / (max(normalisers.rollouts, 1) * normalisers.length))


def count(lengths: np.ndarray, in_loss: np.ndarray, length: int) -> Normalisers:
    """Return the normalisers of the rollouts that train: policy tokens and non-empty rollouts.

    ``lengths``: int64[R] policy tokens. ``in_loss``: bool[R]. ``length``: ``max_new_tokens``.
    """
    trained = np.asarray(in_loss, np.bool_) & (np.asarray(lengths) > 0)
    return Normalisers(tokens=int(np.asarray(lengths)[trained].sum()), rollouts=int(trained.sum()), length=length)


def token_weights(
    lengths: np.ndarray, in_loss: np.ndarray, normalisers: Normalisers, variation: Aggregation, group: np.ndarray | None = None
) -> np.ndarray:
    """Return float32[N]: the weight of each policy token, 0 outside the loss. ``normalisers.share`` is a factor of all.

    ``lengths``: int64[R] policy tokens (their sum is N). ``in_loss``: bool[R]. ``group``: int64[R] (None: each rollout is its own group).
    Raise RunError, naming the aggregation, if the returned weights have another shape, or are not finite.
    """
    lengths, who = np.asarray(lengths, np.int64), f"aggregation {type(variation).__name__}"
    groups = np.arange(len(lengths)) if group is None else group
    with error_context(who, "weighing tokens"):
        values = np.asarray(variation.weights(lengths, np.asarray(in_loss, np.bool_), groups, normalisers), np.float64)
    if values.shape != (lengths.sum(),):
        raise RunError(f"{who} returned weights of shape {list(values.shape)}; it must return one per token, [{lengths.sum()}]")
    with np.errstate(over="ignore"):
        values = np.where(np.repeat(in_loss, lengths), values * normalisers.share, 0.0).astype(np.float32)
    if not np.isfinite(values).all():
        raise RunError(f"{who} returned weights that are not finite in float32")
    return values
