"""The uniform numbers of a completion: a function of ``Request.noise`` and the token's place, of nothing else.

The number of token ``t`` is element ``t`` of ``numpy.random.Generator(Philox(SeedSequence(noise))).random()``; it is read off in blocks.
"""

from __future__ import annotations

import numpy as np

__all__ = ["BLOCK", "NoiseStream"]

BLOCK = 64
_LARGEST = 1.0 - 2.0**-40
# Below 1 by more than the rounding of a cumulative sum, so that a draw never falls behind the last token that has probability.


class NoiseStream:
    """Uniform numbers in [0, 1), ``BLOCK`` at a time, in order."""

    __slots__ = ("_generator",)

    def __init__(self, noise: tuple[int, ...]) -> None:
        self._generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(noise)))

    def next_block(self) -> np.ndarray:
        """float64[BLOCK], the next of the stream."""
        return np.minimum(self._generator.random(BLOCK), _LARGEST)
