"""What length does to a reward and to the masks: the soft overlong punishment.

Source: DAPO (arXiv 2503.14476), section 3.4, equation 13. Two things are settled here on purpose: the penalty stays at its full value at
the cap and beyond, so that an answer never gains by growing longer; and a truncated answer counts as being at the cap, whatever cut it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["SoftOverlong", "soft_overlong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftOverlong:
    """``cache_length`` tokens before ``max_new_tokens`` the penalty starts, and falls to ``-correct_score`` at the cap."""

    max_new_tokens: int
    cache_length: int
    correct_score: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.cache_length <= self.max_new_tokens:
            raise ValueError(f"cache_length {self.cache_length} must lie in 1 … max_new_tokens ({self.max_new_tokens})")


def soft_overlong(lengths: np.ndarray, truncated: np.ndarray, rule: SoftOverlong) -> np.ndarray:
    """float64[R], never positive and never rising with length: ``clip((max - cache - L) / cache, -1, 0) * correct_score``.

    ``lengths`` int64[R] policy tokens; ``truncated`` bool[R]: these count as ``max_new_tokens`` long.
    """
    length = np.where(truncated, rule.max_new_tokens, lengths).astype(np.float64)
    share = (rule.max_new_tokens - rule.cache_length - length) / rule.cache_length
    return np.clip(share, -1.0, 0.0) * rule.correct_score
