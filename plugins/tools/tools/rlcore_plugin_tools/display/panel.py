"""The lines of a run's panel: a bar, figures, and a line of characters each for the reward and for held-out accuracy."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from rlcore.api.display import UpdatePace, format_duration, format_metric, format_work
from rlcore_plugin_tools.display.sparkline import ASCII_LEVELS, BLOCKS, Curve

__all__ = ["RunPanel", "WorkPanel"]

_WIDEST = 48
"""The most columns of the bar and of the curves."""
_BOLD, _DIM, _GREEN, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[0m"


class RunPanel:
    """The panel of a run. A call with columns and rows returns the lines: at most so many, and none wider. ``unicode``: whether the
    terminal can show more than ASCII; ``colours``: whether it understands bold and green."""

    def __init__(self, total_steps: int, *, unicode: bool = True, colours: bool = True) -> None:
        self.pace = UpdatePace(total_steps)
        self.metrics: Mapping[str, float] = {}
        self.reward, self.held_out = Curve(), Curve()
        self._best = ""
        self._unicode, self._colours = unicode, colours

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a completed update."""
        self.pace.advance(step, metrics.get("response_tokens", 0.0))
        self.metrics = metrics
        self.reward.add(metrics.get("reward/mean", math.nan))

    def evaluate(self, step: int, accuracy: float) -> None:
        """Take the held-out accuracy after so many updates."""
        if not accuracy <= self.held_out.most:
            self._best = f"best {accuracy:.3f} at {step}"
        self.held_out.add(accuracy)

    def __call__(self, columns: int, rows: int) -> Sequence[str]:
        lines = [self._figures(columns)]
        if self.reward:
            lines.append(self._curve("reward", self.reward, f"{self.reward.least:.3g} to {self.reward.most:.3g}", columns))
        if self.held_out:
            lines.append(self._curve("held-out", self.held_out, self._best, columns))
        if rows > len(lines):
            share = self.pace.step / max(self.pace.total_steps, 1)
            lines.insert(0, _bar(share, columns, unicode=self._unicode, colours=self._colours))
        return lines[: max(rows, 0)]

    def _figures(self, columns: int) -> str:
        """Return a line of figures, as many as fit."""
        pace = self.pace
        shown = [("step", f"{pace.step}/{pace.total_steps}")]
        shown += (
            [("left", format_duration(pace.seconds_left))]
            if pace.step
            else [("waiting for the first batch", format_duration(pace.seconds))]
        )
        if pace.step:
            shown += [
                ("length", format_metric(self.metrics, "response_length/mean", ".1f")),
                ("tokens/s", f"{pace.tokens_per_second:.0f}"),
                ("since", format_duration(pace.seconds)),
            ]
        line, room = "", columns
        for name, value in shown:
            room -= cell_len(f"{name} {value}") + 3 * bool(line)
            if room < 0:
                break
            line += "   " * bool(line) + f"{self._styled(name, _DIM)} {self._styled(self._plain(value), _BOLD)}"
        return line

    def _curve(self, name: str, curve: Curve, told: str, columns: int) -> str:
        """Return name, value, characters, and the text ``told`` if it fits."""
        head = f"{name:<9}{curve.last:>6.3f} "
        room = columns - len(head)
        if room < 0:
            return head[: max(columns, 0)]
        tail = f"  {told}" if room - len(told) - 2 >= 12 else ""
        drawn = curve.drawn(min(_WIDEST, room - len(tail)), BLOCKS if self._unicode else ASCII_LEVELS)
        value = self._styled(f"{curve.last:>6.3f}", _BOLD)
        return f"{self._styled(f'{name:<9}', _DIM)}{value} {self._styled(drawn, _GREEN)}{self._styled(tail, _DIM)}"

    def _plain(self, text: str) -> str:
        return text if self._unicode else text.replace("–", "-")

    def _styled(self, text: str, style: str) -> str:
        return _styled(text, style, colours=self._colours)


class WorkPanel:
    """The panel of slow work before the first update: a bar and a line. ``done`` is set by its owner."""

    def __init__(self, work: str, total: int, *, unicode: bool = True, colours: bool = True) -> None:
        self.done = 0
        self._work, self._total = work, total
        self._begun = time.monotonic()
        self._unicode, self._colours = unicode, colours

    def __call__(self, columns: int, rows: int) -> Sequence[str]:
        told = format_work(self.done, self._total, time.monotonic() - self._begun) if self.done else f"0 of {self._total}"
        share = self.done / max(self._total, 1)
        return [_bar(share, columns, unicode=self._unicode, colours=self._colours), f"{self._work}: {told}"[:columns]][: max(rows, 0)]


def _bar(share: float, columns: int, *, unicode: bool, colours: bool) -> str:
    width = min(_WIDEST, columns)
    done = round(width * min(share, 1.0))
    full, empty = "━━" if unicode else "=-"
    return _styled(full * done, _GREEN, colours=colours) + _styled(empty * (width - done), _DIM, colours=colours)


def _styled(text: str, style: str, *, colours: bool) -> str:
    return f"{style}{text}{_RESET}" if colours and text else text
