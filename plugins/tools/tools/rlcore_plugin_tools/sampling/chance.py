"""Random numbers that only the seed and a number determine, on every machine."""

from __future__ import annotations

import numpy as np

__all__ = ["chance", "shuffled"]


def chance(seed: int, number: int) -> float:
    """Return a number from 0 (included) to 1."""
    return float(_words(seed, number, 1)[0] >> np.uint64(11)) / 2**53


def shuffled(items: int, seed: int, episode: int) -> list[int]:
    """Return the items 0 to ``items - 1`` in a random order."""
    order: list[int] = np.argsort(_words(seed, episode, items), kind="stable").tolist()
    return order


def _words(seed: int, number: int, count: int) -> np.ndarray:
    return np.random.Philox(key=np.array([seed, number], dtype=np.uint64)).random_raw(count)
