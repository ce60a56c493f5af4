"""The data that a rule may read: the last updates of a run, how it began, and its settings. It knows no rule."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, SupportsFloat

__all__ = ["BEGINNING", "LONGEST", "MetricHistory", "MissingMetric"]

BEGINNING = 10
"""The number of first updates whose mean is the initial value of a figure."""
LONGEST = 20
"""Updates that are kept."""


class MissingMetric(Exception):
    """A rule asked for a figure that is absent, not finite, or not yet there for so many updates; the rule gives no result."""


class MetricHistory:
    """The last ``LONGEST`` updates. Methods raise MissingMetric if a figure is missing in one of the requested updates."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._updates: deque[Mapping[str, float]] = deque(maxlen=LONGEST)
        self._beginnings: dict[str, list[float]] = {}

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add one update; values that are not finite numbers count as absent."""
        numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, SupportsFloat)}
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        self._updates.append(finite)
        for name, value in finite.items():
            first = self._beginnings.setdefault(name, [])
            if len(first) < BEGINNING:
                first.append(value)

    def values(self, name: str, updates: int, *, before: int = 0) -> list[float]:
        """Return a figure in so many updates, oldest first: the last ones, or those before the last ``before``."""
        end = len(self._updates) - before
        if end < updates:
            raise MissingMetric(name)
        try:
            return [self._updates[at][name] for at in range(end - updates, end)]
        except KeyError:
            raise MissingMetric(name) from None

    def mean(self, name: str, updates: int, *, before: int = 0) -> float:
        """Return its mean over those updates."""
        return sum(self.values(name, updates, before=before)) / updates

    def total(self, names: Iterable[str], updates: int) -> float:
        """Return the sum over the last updates of several figures, some of which may be absent; MissingMetric if all are absent in one
        of the updates."""
        known = list(names)
        if len(self._updates) < updates:
            raise MissingMetric(*known)
        rows = [[row[name] for name in known if name in row] for row in list(self._updates)[-updates:]]
        if not all(rows):
            raise MissingMetric(*known)
        return sum(value for row in rows for value in row)

    def share(self, part: str, whole: str, updates: int) -> float:
        """Return the seconds of a category as a share of all that begin with ``whole``, over the last updates."""
        names = {name for row in self._updates for name in row if name.startswith(whole)}
        spent = self.total([part], updates)
        everything = self.total(names, updates)
        if everything <= 0:
            raise MissingMetric(whole)
        return spent / everything

    def began_with(self, name: str) -> float:
        """Return its mean over the first ``BEGINNING`` updates that have it."""
        first = self._beginnings.get(name, [])
        if len(first) < BEGINNING:
            raise MissingMetric(name)
        return sum(first) / BEGINNING

    @property
    def alternating(self) -> bool:
        """True if the run alternated between generation and training; MissingMetric if its configuration does not say."""
        return not self.setting("schedule", "max_staleness")

    def setting(self, section: str, name: str) -> Any:
        """Return a value of the run's configuration; MissingMetric if it has none."""
        try:
            return self._config[section][name]
        except (KeyError, TypeError):
            raise MissingMetric(f"{section}.{name}") from None
