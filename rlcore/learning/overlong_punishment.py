"""The effect of length on the reward: the soft overlong punishment.

Source: DAPO (arXiv 2503.14476), section 3.4, equation 13. Two choices are deliberate. The penalty keeps its full value at the cap and
beyond, so that an answer never gains by growing longer. A truncated answer counts as being at the cap, whatever truncated it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["SoftOverlong", "soft_overlong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftOverlong:
    """The punishment starts ``cache_length`` tokens before ``max_new_tokens``, and falls to ``-correct_score`` at the cap."""

    max_new_tokens: int
    cache_length: int
    correct_score: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.cache_length <= self.max_new_tokens:
            raise ValueError(f"cache_length {self.cache_length} must be from 1 to max_new_tokens ({self.max_new_tokens})")


def soft_overlong(lengths: np.ndarray, truncated: np.ndarray, rule: SoftOverlong) -> np.ndarray:
    """Return float64[R], never positive and never rising with length: ``clip((max - cache - L) / cache, -1, 0) * correct_score``.

    ``lengths``: int64[R] policy tokens. ``truncated``: bool[R], True for rollouts that count as ``max_new_tokens`` long.
    """
    length = np.where(truncated, rule.max_new_tokens, lengths).astype(np.float64)
    share = (rule.max_new_tokens - rule.cache_length - length) / rule.cache_length
    return np.clip(share, -1.0, 0.0) * rule.correct_score
