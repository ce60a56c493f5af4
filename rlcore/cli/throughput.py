"""How fast a run updates, and how its figures are written."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

__all__ = ["UpdatePace", "format_duration", "format_metric"]


class UpdatePace:
    """Steps and tokens over time, for tokens/s and the time left."""

    def __init__(self, total_steps: int) -> None:
        self.total_steps = total_steps
        self._started = time.monotonic()
        self._tokens = 0.0
        self._first: int | None = None
        self.step = 0

    def advance(self, step: int, tokens: float) -> None:
        """An update was completed, with so many tokens."""
        if self._first is None:  # 1, but in a run that goes on
            self._first = step
        self.step = step
        self._tokens += tokens

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._started

    @property
    def tokens_per_second(self) -> float:
        """Mean since then."""
        return self._tokens / max(self.seconds, 1e-9)

    @property
    def seconds_left(self) -> float:
        """As long as updates took until now; NaN before the first."""
        if self._first is None:
            return math.nan
        return self.seconds / (self.step - self._first + 1) * max(self.total_steps - self.step, 0)


def format_metric(metrics: Mapping[str, float], name: str, form: str) -> str:
    """A format_metric as text, – if there is none."""
    value = metrics.get(name, math.nan)
    return format(value, form) if math.isfinite(value) else "–"


def format_duration(seconds: float) -> str:
    """``0:42``, ``1:02:03``, – for NaN."""
    if not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
