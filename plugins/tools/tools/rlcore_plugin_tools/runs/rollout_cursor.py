"""Matching rollouts by index, forwards and backwards. Memory contains only the places of those seen so far, and one update."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from itertools import count, islice
from typing import Any

from rlcore_plugin_tools.runs.rollout_rows import RolloutFilter, RolloutSource, found_in

__all__ = ["RolloutCursor"]


class RolloutCursor:
    """Matching rollouts, read only as far as requested; ends after ``limit`` of them, if there is one."""

    def __init__(self, source: RolloutSource, wanted: RolloutFilter, limit: int | None = None) -> None:
        self._source = source
        self._ahead = islice(self._matching(wanted), limit)
        self._steps, self._numbers = array("q"), array("q")
        self._update: tuple[int, list[dict[str, Any]]] = (-1, [])
        self.whole = False
        """Whether the end was reached, so that ``known`` counts all."""

    @property
    def known(self) -> int:
        """The number of rollouts read so far."""
        return len(self._steps)

    def at(self, place: int) -> Mapping[str, Any] | None:
        """Return the row with this number, from 0; None after the last."""
        while place >= self.known and not self.whole:
            found = next(self._ahead, None)
            if found is None:
                self.whole = True
            else:
                self._steps.append(found[0])
                self._numbers.append(found[1])
        return self._rows(self._steps[place])[self._numbers[place]] if place < self.known else None

    def find(self, words: str, start: int) -> int | None:
        """Return the index of the next row from ``start`` on that contains the words; None if there is none."""
        for place in count(start):
            row = self.at(place)
            if row is None:
                return None
            if found_in(row, words):
                return place
        return None

    def _matching(self, wanted: RolloutFilter) -> Iterator[tuple[int, int]]:
        for step in self._source.steps:
            for number, row in enumerate(self._rows(step)):
                if wanted.takes(row):
                    yield step, number

    def _rows(self, step: int) -> list[dict[str, Any]]:
        if self._update[0] != step:
            self._update = step, list(self._source.of(step))
        return self._update[1]
