"""Find the best checkpoint by the figure that ``log.best_by`` names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from rlcore.contracts.errors import UsageError

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
        if figure is not None and isfinite(figure):
            self._known[step] = figure

    @property
    def evaluated(self) -> bool:
        """Whether an evaluation measures the figure, not the update itself."""
        return self.name == "accuracy" or self.name.startswith("eval/")

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

    def kept(self, steps: Collection[int]) -> BestFigure | None:
        """Return the best of all steps. Of equals, prefer one of ``steps``, which have checkpoints."""
        best, kept = self.of(), self.of(steps)
        return kept if best is not None and kept is not None and kept.value == best.value else best

    def step_among(self, steps: Collection[int], run: Path) -> int:
        """Return the step of the best checkpoint of a run. Raise UsageError if ``steps``, which have checkpoints, lack the best step."""
        best = self.kept(steps)
        if best is not None and best.step in steps:
            return best.step
        saved = [step for step in sorted(steps) if step]  # step 0 is the model that the run began with
        there = f"there are checkpoints of steps {', '.join(map(str, saved))}" if saved else "there is no checkpoint"
        if best is None:
            raise UsageError(f"--best: {run} has no {self.name} by which to choose; {there}: type --step N")
        lacks, more = ("it has no checkpoint", ", and for the next run --keep-best") if best.step else ("no update was as good", "")
        raise UsageError(
            f"--best: the best step of {run} is {best.step} ({self.name} {best.value:.4g}), and {lacks}; {there}: type --step N{more}"
        )
