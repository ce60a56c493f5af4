"""A figure over a whole run as one line of characters."""

from __future__ import annotations

import math

__all__ = ["ASCII_LEVELS", "BLOCKS", "Curve"]

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_LEVELS = "_.:-=+*#"
"""Levels for terminals whose encoding has no blocks."""
_MOST = 512
"""Points that are kept; beyond it, neighbours are averaged."""


class Curve:
    """Values in their order. Values that are not finite are left out, since they have no height."""

    def __init__(self) -> None:
        self._points: list[float] = []
        self._per_point = 1
        self._rest: list[float] = []
        """Values that have not become a point yet."""
        self.last = self.least = self.most = math.nan

    def add(self, value: float) -> None:
        """Add one value."""
        if not math.isfinite(value):
            return
        self.last, self.least, self.most = value, min(value, self.least), max(value, self.most)  # in this order, so that NaN is replaced
        self._rest.append(value)
        if len(self._rest) < self._per_point:
            return
        self._points.append(_mean(self._rest))
        self._rest = []
        if len(self._points) == _MOST:
            self._points = [_mean(self._points[at : at + 2]) for at in range(0, _MOST, 2)]
            self._per_point *= 2

    def __bool__(self) -> bool:
        return not math.isnan(self.last)

    def heights(self, most: int) -> list[float]:
        """Return at most so many values over the whole run; neighbours are averaged."""
        points = self._points + ([_mean(self._rest)] if self._rest else [])
        columns = min(max(most, 0), len(points))
        return [_mean(points[at * len(points) // columns : (at + 1) * len(points) // columns]) for at in range(columns)]

    def drawn(self, width: int, levels: str = BLOCKS) -> str:
        """Return at most ``width`` characters. The lowest and the highest of ``levels`` stand for the lowest and the highest value."""
        heights = self.heights(width)
        if not heights:
            return ""
        low, spread = min(heights), max(heights) / 2 - min(heights) / 2  # halves: the difference of two finite numbers may be infinite
        return "".join(levels[round((height / 2 - low / 2) / spread * (len(levels) - 1)) if spread else 0] for height in heights)


def _mean(values: list[float]) -> float:
    return sum(value / len(values) for value in values)
