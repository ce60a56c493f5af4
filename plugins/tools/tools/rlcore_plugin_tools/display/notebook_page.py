"""The HTML of a run in a notebook: figures, one chart, notes and answers. Its size does not grow with the run.

All text is escaped, since a model or a data set may contain HTML. Colours fit light and dark pages: text has the colour of the page, and
lines have a tone between the two.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rlcore.api.commands import escape_control
from rlcore.api.display import TaskReport, UpdatePace, evaluation_line, format_duration, format_metric, format_work, mean_accuracy
from rlcore_plugin_tools.display.sparkline import Curve

__all__ = ["NotebookPage", "Trace"]

_BLUE, _ORANGE, _GREY = "#3d8bd4", "#d9822b", "#88888844"
_MUTED = "opacity: .65"
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 180, 44, 44, 10, 22
_POINTS = 160
_NOTES, _WARNINGS, _ANSWERS = 4, 4, 3
_GREATEST = 1e300
"""Differences of values up to here are finite."""
_LONGEST = 300
"""Characters of a note, a prompt or an answer."""


class Trace:
    """A figure over the updates of a run, with a bounded number of points."""

    def __init__(self) -> None:
        self.steps, self.values = Curve(), Curve()

    def add(self, step: int, value: float) -> None:
        """Add a point; a value that is not finite has none."""
        if math.isfinite(value):
            self.steps.add(step)
            self.values.add(max(-_GREATEST, min(value, _GREATEST)))

    def points(self) -> list[tuple[float, float]]:
        """Return steps and values. The last point is the last value, which the averages may not show."""
        averages = list(zip(self.steps.heights(_POINTS), self.values.heights(_POINTS), strict=True))
        return [*averages[:-1], (self.steps.last, self.values.last)] if averages else []


class NotebookPage:
    """The state of a run, and its HTML."""

    def __init__(self) -> None:
        self.pace = UpdatePace(1)
        self.folder = self.work = self.state = self._evaluated = ""
        self.metrics: Mapping[str, float] = {}
        self.reward, self.held_out = Trace(), Trace()
        self._notes: deque[str] = deque(maxlen=_NOTES)
        self._warnings: deque[str] = deque(maxlen=_WARNINGS)
        self._warned = 0
        self.interrupted = False
        self._answers: Sequence[Mapping[str, Any]] = ()

    def start(self, folder: str, total_steps: int) -> None:
        """Begin a run, or begin it again from its checkpoint; notes remain."""
        self.folder, self.work, self.pace = folder, "", UpdatePace(total_steps)
        self.reward, self.held_out, self.metrics = Trace(), Trace(), {}

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a completed update."""
        self.pace.advance(step, metrics.get("response_tokens", 0.0))
        self.metrics = metrics
        self.reward.add(step, metrics.get("reward/mean", math.nan))

    def evaluate(self, step: int, reports: Sequence[TaskReport]) -> None:
        """Take an evaluation, with its first answers."""
        accuracy = mean_accuracy(reports)
        if accuracy is not None:
            self.held_out.add(step, accuracy)
        self._evaluated = _short(evaluation_line(step, reports))
        rows = [row for report in reports for row in report.rows if row.get("index", 0) == 0]
        self._answers = [_answer(row) for row in rows[:_ANSWERS]]

    def note(self, text: str) -> None:
        """Take a note. Warnings are kept longer than other notes."""
        self.interrupted |= text.startswith("interrupted")
        warns = text.startswith(("warning", "interrupted"))
        self._warned += warns
        (self._warnings if warns else self._notes).append(_short(text))

    def working(self, work: str, done: int, total: int, seconds: float) -> None:
        """Take how much of slow work is done."""
        told = format_work(done, total, seconds) if done else f"0 of {total}"
        self.work = f"{work}: {told}" if done < total else ""

    def html(self) -> str:
        """Return the whole cell."""
        parts = [self._head(), self._bar(), self._chart(), self._texts(), self._told_answers()]
        style = f"max-width: {_WIDTH}px; font-size: 13px; line-height: 1.5; font-variant-numeric: tabular-nums"
        return f'<div class="rlcore-run" style="{style}">{"".join(parts)}</div>'

    def text(self) -> str:
        """Return one line, for front ends that show no HTML."""
        return escape_control(f"{self.state or 'running'}: " + ", ".join(f"{name} {value}" for name, value in self._figures()))

    def _figures(self) -> list[tuple[str, str]]:
        pace = self.pace
        if not self.folder:
            return [("", self.work or "starting")]
        figures = [("step", f"{pace.step} of {pace.total_steps}")]
        if not pace.step:
            return [*figures, ("waiting for the first batch", format_duration(pace.seconds))]
        figures.append(("reward", format_metric(self.metrics, "reward/mean", ".3f")))
        if self.held_out.values:
            figures.append(("held-out accuracy", f"{self.held_out.values.last:.3f}"))
        figures.append(("tokens/s", f"{pace.tokens_per_second:.0f}"))
        return figures if self.state else [*figures, ("left", format_duration(pace.seconds_left))]

    def _head(self) -> str:
        state = f"<b>{_safe(self.state)}</b> &ensp;" if self.state else ""
        told = (f'<span style="{_MUTED}">{_safe(name)}</span> <b>{_safe(value)}</b>' for name, value in self._figures())
        return f"<div>{state}{' &ensp; '.join(told)}</div>"

    def _bar(self) -> str:
        share = min(self.pace.step / max(self.pace.total_steps, 1), 1.0)
        inner = f'<div style="height: 4px; width: {share:.1%}; background: {_BLUE}; border-radius: 2px"></div>'
        return f'<div style="background: {_GREY}; border-radius: 2px; margin: 4px 0 8px">{inner}</div>'

    def _chart(self) -> str:
        """Return the reward (left axis) and the held-out accuracy (right axis, 0 to 1) over the steps, "" without any point."""
        reward, held_out = self.reward.points(), self.held_out.points()
        if not reward and not held_out:
            return ""
        last = max(self.pace.total_steps, 1)
        low, high = _range([value for _, value in reward])
        lines = [_grid(at / 4) for at in range(5)]
        lines += [_label(_x(0, last), _HEIGHT - 6, "0", "middle"), _label(_x(last, last), _HEIGHT - 6, f"{last}", "middle")]
        lines.append(_label(_WIDTH / 2, _HEIGHT - 6, "updates", "middle"))
        if reward:
            lines += [_label(_LEFT - 6, _y(share) + 4, f"{low + share * (high - low):.3g}", "end", _BLUE) for share in (0.0, 0.5, 1.0)]
            lines.append(_line([(_x(step, last), _y((value - low) / (high - low))) for step, value in reward], _BLUE))
        if held_out:
            lines += [_label(_WIDTH - _RIGHT + 6, _y(share) + 4, f"{share:g}", "start", _ORANGE) for share in (0.0, 0.5, 1.0)]
            lines.append(
                _line([(_x(step, last), _y(max(0.0, min(value, 1.0)))) for step, value in held_out], _ORANGE, dots=len(held_out) <= 30)
            )
        names = [("reward (left)", _BLUE)] * bool(reward) + [("held-out accuracy (right)", _ORANGE)] * bool(held_out)
        legend = " &emsp; ".join(f'<span style="color: {colour}">━</span> {name}' for name, colour in names)
        told = f"{' and '.join(name for name, _ in names)} over {last} updates"
        size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" style="display: block"'
        svg = f'<svg {size} role="img" aria-label="{told}">{"".join(lines)}</svg>'
        return f'<div style="font-size: 12px">{legend}</div>{svg}'

    def _texts(self) -> str:
        more = f" ({self._warned - len(self._warnings)} earlier ones are not shown)" if self._warned > len(self._warnings) else ""
        warnings = [f'<div style="border-left: 3px solid {_ORANGE}; padding-left: 8px">{_safe(text)}</div>' for text in self._warnings]
        warnings += [f'<div style="{_MUTED}">{more}</div>'] * bool(more)
        folder = f"run folder: {_short(self.folder)}" if self.folder else ""
        notes = [f'<div style="{_MUTED}">{_safe(text)}</div>' for text in (*self._notes, self._evaluated, folder) if text]
        return f'<div style="font-size: 12px; overflow-wrap: anywhere; margin-top: 6px">{"".join([*warnings, *notes])}</div>'

    def _told_answers(self) -> str:
        if not self._answers:
            return ""
        return (
            f'<div style="font-size: 12px; margin-top: 8px"><b>Answers at the last evaluation</b>{"".join(map(_card, self._answers))}</div>'
        )


def _answer(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is shown of a row, so that the rows of an evaluation are not kept."""
    prompt = row.get("prompt") or ()
    content = prompt[-1].get("content", "") if isinstance(prompt, list | tuple) and prompt else prompt
    return {"prompt": _short(f"{content}"), "prediction": _short(f"{row.get('prediction', '')}"), "right": bool(row.get("ans_valid"))}


def _card(answer: Mapping[str, Any]) -> str:
    mark = "✓ right" if answer["right"] else "✗ wrong"
    style = f"border-left: 3px solid {_GREY}; padding-left: 8px; margin-top: 4px; overflow-wrap: anywhere"
    pre = "white-space: pre-wrap; font-family: monospace"
    said = f'<span style="{pre}">{_safe(answer["prediction"]) or "(empty)"}</span> <span style="{_MUTED}">{mark}</span>'
    return f'<div style="{style}"><div style="{pre}; {_MUTED}">{_safe(answer["prompt"])}</div>{said}</div>'


def _safe(text: str) -> str:
    return escape(escape_control(text, lines=True))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the greatest value with some room; 0 and 1 without values."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
    return low - room, high + room


def _x(step: float, last: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(step / last, 1.0)


def _y(share: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - share)


def _grid(share: float) -> str:
    return f'<path d="M{_LEFT} {_y(share):.1f}H{_WIDTH - _RIGHT}" stroke="{_GREY}"/>'


def _label(x: float, y: float, text: str, anchor: str, colour: str = "currentColor") -> str:
    faint = ' opacity=".65"' if colour == "currentColor" else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="11" text-anchor="{anchor}" fill="{colour}"{faint}>{text}</text>'


def _line(points: Sequence[tuple[float, float]], colour: str, *, dots: bool = False) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points) if dots or len(points) == 1 else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>{marks}'
