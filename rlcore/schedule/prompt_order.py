"""The order of the prompts of an episode, and the samplers that the core has: they issue prompts in such an order, or by weight."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from rlcore.contracts.errors import ConfigError
from rlcore.contracts.sampler import Sampler, SamplerContext

__all__ = ["EpisodeOrder", "Sequential", "Shuffled", "Weighted", "episode_order"]


def episode_order(n: int, episode: int, seed: int, shuffle: bool) -> np.ndarray:
    """Return int64[n]: the prompt index at each position in the episode.

    It depends only on the arguments, on every machine and numpy version.

    Sorting raw Philox words keyed by (seed, episode) gives the permutation. numpy keeps the raw stream stable across versions, which it
    does not promise for ``Generator.permutation``. Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".

    Raise ValueError for a negative n, or an episode or seed outside [0, 2**64).
    """
    if n < 0 or not 0 <= episode < 2**64 or not 0 <= seed < 2**64:
        raise ValueError(f"episode_order: n, episode and seed must not be negative (nor exceed 64 bits), got {n}, {episode}, {seed}")
    if not shuffle:
        return np.arange(n, dtype=np.int64)
    words = np.random.Philox(key=np.array([seed, episode], dtype=np.uint64)).random_raw(n)
    return np.argsort(words, kind="stable").astype(np.int64)


class EpisodeOrder(Sampler):
    """Issues every item once in an episode. Its only state is the number of draws."""

    def __init__(self, context: SamplerContext) -> None:
        self._items, self._seed = context.items, context.seed
        self._drawn = 0

    def next(self) -> int:
        item = self.item(self._drawn)
        self._drawn += 1
        return item

    def item(self, number: int) -> int:
        """Return the item of draw ``number``, from 0."""
        return number if self._items is None else number % self._items

    def state(self) -> Mapping[str, Any]:
        return {"drawn": self._drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._drawn = state["drawn"]


class Sequential(EpisodeOrder):
    """Issues the items in their order, episode after episode."""


class Shuffled(EpisodeOrder):
    """Issues each episode in a random order of its own."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        if context.items is None:
            raise ConfigError(
                "the sampler shuffled draws from a known number of prompts, and the data has no end; type --sampler sequential"
            )
        self._episode, self._order = -1, np.empty(0, dtype=np.int64)

    def item(self, number: int) -> int:
        assert self._items is not None
        episode, position = divmod(number, self._items)
        if episode != self._episode:
            self._episode, self._order = episode, episode_order(self._items, episode, self._seed, True)
        return int(self._order[position])


class Weighted(Sampler):
    """Issues each item in proportion to its weight: after any number of draws, every count is within one of its share.

    The draw of an item is due between two numbers of draws: the share reaches its count so far, and its count plus one. Of the items that
    have reached the first number, the one with the earliest second number is drawn, or the first of several. Source: Baruah et al. 1996,
    "Proportionate progress", for one resource.
    """

    def __init__(self, context: SamplerContext) -> None:
        if not context.weights:
            raise ConfigError("the sampler weighted draws from items with weights, and the data has no end; type --sampler sequential")
        whole = sum(map(Fraction, context.weights))
        self._shares = [Fraction(weight) / whole for weight in context.weights]
        self._counts = [0] * len(self._shares)

    def next(self) -> int:
        number = sum(self._counts) + 1
        due = [
            (ceil((count + 1) / share), item)
            for item, (share, count) in enumerate(zip(self._shares, self._counts, strict=True))
            if share * number > count
        ]
        item = min(due)[1]
        self._counts[item] += 1
        return item

    def state(self) -> Mapping[str, Any]:
        return {"counts": list(self._counts)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._counts = list(state["counts"])
