"""From a loss per token to one number: the weight of each token, with the normalisers of the whole optimizer step in it.

The weights are fixed before the first forward, so the loss of any share of the batch is ``sum(weights * per_token)``, and shares add up.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from rlcore.contracts.batches import Normalisers

__all__ = ["Variation", "count", "token_weights"]


class Variation(StrEnum):
    """How losses per token become one number; the value is what users type as ``loss_variation``."""

    TOKEN_LEVEL = "token_level"
    """Mean over all tokens of the step: long rollouts weigh more (DAPO, arXiv 2503.14476, section 3.3)."""
    SAMPLE_LEVEL = "sample_level"
    """Mean over the tokens of a rollout, then over rollouts (GRPO, arXiv 2402.03300, equation 3)."""
    CONSTANT_LENGTH = "constant_length"
    """Sum over the tokens of a rollout / ``max_new_tokens``, then mean over rollouts (Dr. GRPO, arXiv 2503.20783, appendix A)."""


def count(lengths: np.ndarray, in_loss: np.ndarray, length: int) -> Normalisers:
    """Normalisers of the rollouts that train: policy tokens and non-empty rollouts; ``length`` is ``max_new_tokens``.

    ``lengths`` int64[R] policy tokens, ``in_loss`` bool[R].
    """
    trained = np.asarray(in_loss, np.bool_) & (np.asarray(lengths) > 0)
    return Normalisers(tokens=int(np.asarray(lengths)[trained].sum()), rollouts=int(trained.sum()), length=length)


def token_weights(lengths: np.ndarray, in_loss: np.ndarray, normalisers: Normalisers, variation: Variation | str) -> np.ndarray:
    """float32[N]: the weight of each policy token, 0 outside the loss.

    ``lengths`` int64[R] policy tokens (their sum is N), ``in_loss`` bool[R]. Token level: 1 / tokens. Sample level:
    1 / (rollouts x tokens of its rollout). Constant length: 1 / (rollouts x length). Raises ValueError for another ``variation``.
    """
    lengths = np.asarray(lengths, np.int64)
    rollouts = max(normalisers.rollouts, 1)
    match Variation(variation):
        case Variation.TOKEN_LEVEL:
            per_rollout = np.full(len(lengths), 1.0 / max(normalisers.tokens, 1))
        case Variation.SAMPLE_LEVEL:
            per_rollout = 1.0 / (rollouts * np.maximum(lengths, 1))
        case Variation.CONSTANT_LENGTH:
            per_rollout = np.full(len(lengths), 1.0 / (rollouts * normalisers.length))
    return np.repeat(np.where(in_loss, per_rollout, 0.0), lengths).astype(np.float32)
