"""The order in which an episode goes through its data set."""

from __future__ import annotations

import numpy as np

__all__ = ["episode_order"]


def episode_order(n: int, episode: int, seed: int, shuffle: bool) -> np.ndarray:
    """int64[n]: the prompt indices 0..n-1, each once; a function of the arguments alone, so that every worker and a resumed run agree."""
    if not shuffle:
        return np.arange(n, dtype=np.int64)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, episode]))).permutation(n).astype(np.int64)
