"""Find the best checkpoint by the figure that ``log.best_by`` names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["BestCheckpoint", "BestFigure"]

_LOWEST = "min:"


@dataclass(frozen=True, slots=True)
class BestFigure:
    """The best value of a figure, and the last step that has it. ``lowest``: the lowest value is the best."""

    name: str
    value: float
    step: int
    lowest: bool = False


class BestCheckpoint:
    """Records the figures of each step, of updates and evaluations alike, in any order."""

    def __init__(self, by: str, tasks: Sequence[str]) -> None:
        """:param by: ``accuracy``, the mean over the held-out ``tasks``; or a metric; ``min:METRIC`` if the lowest value is the best."""
        self.name = by.removeprefix(_LOWEST)
        self._sign = -1.0 if by.startswith(_LOWEST) else 1.0
        self._tasks = tasks
        self._known: dict[int, float] = {}

    def saw(self, step: int, figures: Mapping[str, float | None]) -> None:
        """Record figures of a step. Figures that do not include the wanted one are ignored."""
        figure = self.accuracy(figures) if self.name == "accuracy" else figures.get(self.name)
        if figure is not None:
            self._known[step] = figure

    def accuracy(self, figures: Mapping[str, float | None]) -> float | None:
        """Return the mean over the held-out tasks that were evaluated."""
        known = [figure for task in self._tasks if (figure := figures.get(f"eval/{task}")) is not None]
        return sum(known) / len(known) if known else None

    def of(self, steps: Iterable[int] | None = None) -> BestFigure | None:
        """Return the best of these steps (None: of all), the last of equals; None if none of them has the figure."""
        known = [(self._sign * self._known[step], step) for step in (self._known if steps is None else steps) if step in self._known]
        if not known:
            return None
        figure, step = max(known)
        return BestFigure(self.name, self._sign * figure, step, self._sign < 0)
