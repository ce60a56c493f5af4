"""The rate of updates, and the format of figures."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

__all__ = ["UpdatePace", "format_duration", "format_metric", "format_work"]


class UpdatePace:
    """Steps and tokens over time, for tokens/s and the remaining time."""

    def __init__(self, total_steps: int) -> None:
        self.total_steps = total_steps
        self._started = time.monotonic()
        self._tokens = 0.0
        self._first: int | None = None
        self.step = 0

    def advance(self, step: int, tokens: float) -> None:
        """Record a completed update and its tokens."""
        if self._first is None:  # 1, except in a resumed run
            self._first = step
        self.step = step
        self._tokens += tokens

    @property
    def seconds(self) -> float:
        """Seconds since its creation."""
        return time.monotonic() - self._started

    @property
    def tokens_per_second(self) -> float:
        """The mean since its creation."""
        return self._tokens / max(self.seconds, 1e-9)

    @property
    def seconds_left(self) -> float:
        """The remaining seconds at the average rate so far; NaN before the first update."""
        if self._first is None:
            return math.nan
        return self.seconds / (self.step - self._first + 1) * max(self.total_steps - self.step, 0)


def format_work(done: int, total: int, seconds: float) -> str:
    """Return how much of slow work was done in these seconds: ``80000 of 200000 (40 %), 0:14 left``."""
    share, left = done / max(total, 1), seconds / max(done, 1) * (total - done)
    return f"{done} of {total} ({share:.0%}), {format_duration(left)} left".replace("%)", " %)")


def format_metric(metrics: Mapping[str, float], name: str, form: str) -> str:
    """Return a figure as text, or – if there is none."""
    value = metrics.get(name, math.nan)
    return format(value, form) if math.isfinite(value) else "–"


def format_duration(seconds: float) -> str:
    """Return a time such as ``0:42`` or ``1:02:03``, or – for NaN."""
    if not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
