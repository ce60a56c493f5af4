"""The order of the prompts: episode after episode, each in its own permutation. Prompts that were given back go first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlcore.schedule.schedule_records import ScheduleSettings

__all__ = ["PromptPlace", "PromptQueue", "episode_order"]


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


class PromptPlace(NamedTuple):
    """One prompt of one episode. Places compare in canonical order."""

    episode: int
    position: int
    prompt: int


class PromptQueue:
    """Every place of every episode, handed out in canonical order. A place that was put back is handed out again before any new one."""

    def __init__(self, settings: ScheduleSettings) -> None:
        self._settings = settings
        self._episode = 0
        self._position = 0
        self._order = self._order_of(0)
        self._returned: list[PromptPlace] = []

    @classmethod
    def restored(cls, settings: ScheduleSettings, cursor: Sequence[int], returned: Sequence[Sequence[int]]) -> PromptQueue:
        """Return a line whose first new place is at ``cursor`` = (episode, position), with the places ``returned`` put back."""
        line = cls(settings)
        line._episode, line._position = cursor
        line._order = line._order_of(line._episode)
        orders = {episode: episode_order(settings.prompts, episode, settings.seed, settings.shuffle) for episode, _ in returned}
        line._returned = sorted(PromptPlace(episode, position, int(orders[episode][position])) for episode, position in returned)
        return line

    def _order_of(self, episode: int) -> np.ndarray | None:
        """Return the order of an episode, None after the last one."""
        s = self._settings
        return episode_order(s.prompts, episode, s.seed, s.shuffle) if episode < s.episodes else None

    @property
    def returned(self) -> int:
        """The number of places that were put back and wait."""
        return len(self._returned)

    @property
    def exhausted(self) -> bool:
        """Whether no place is left, unless one is put back."""
        return not self._returned and self._order is None

    def take(self) -> PromptPlace:
        """Return the next place. Raise ValueError if ``exhausted``."""
        if self._returned:
            return heapq.heappop(self._returned)
        if self._order is None:
            raise ValueError("every prompt of every episode has been handed out: check `exhausted` before `take`")
        place = PromptPlace(self._episode, self._position, int(self._order[self._position]))
        self._position += 1
        if self._position == self._settings.prompts:
            self._episode, self._position = self._episode + 1, 0
            self._order = self._order_of(self._episode)
        return place

    def put_back(self, place: PromptPlace) -> None:
        """Put a place back. It is handed out again before any new one."""
        heapq.heappush(self._returned, place)

    def cursor(self) -> tuple[int, int]:
        """Return (episode, position) of the first place that was never handed out."""
        return self._episode, self._position

    def waiting(self) -> list[PromptPlace]:
        """Return the places that were put back, in canonical order."""
        return sorted(self._returned)
