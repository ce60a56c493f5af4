"""Grouped bars as SVG, without a plotting library: the same text for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["bars"]

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 860, 380, 60, 78, 40
COLOURS = ("#1f6feb", "#d9822b", "#8a8f98")
GAP = 0.28
"""Share of a group's width that is empty."""


def bars(title: str, groups: Mapping[str, Sequence[float]], names: Sequence[str]) -> str:
    """One group of bars a key, one bar a name, its value above it; the axis begins at 0."""
    top = _round_up(max(max(values) for values in groups.values()))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="bold" fill="#1c2128">{escape(title)}</text>',
        *_legend(names),
        *_axis(top),
    ]
    width = (WIDTH - LEFT - 20) / len(groups)
    for place, (group, values) in enumerate(groups.items()):
        parts += _group(LEFT + place * width, width, group, values, top)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(names: Sequence[str]) -> list[str]:
    lines = []
    for place, name in enumerate(names):
        x = LEFT + place * 210
        lines.append(f'<rect x="{x}" y="38" width="13" height="13" fill="{COLOURS[place]}"/>')
        lines.append(f'<text x="{x + 19}" y="49" fill="#1c2128">{escape(name)}</text>')
    return lines


def _axis(top: float) -> list[str]:
    lines = []
    for step in range(5):
        value = top * step / 4
        y = _y(value, top)
        lines.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}" stroke="#d0d7de"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#57606a">{value:,.0f}</text>')
    return lines


def _group(left: float, width: float, group: str, values: Sequence[float], top: float) -> list[str]:
    each = width * (1 - GAP) / len(values)
    lines = [f'<text x="{left + width / 2:.1f}" y="{HEIGHT - 16}" text-anchor="middle" fill="#1c2128">{escape(group)}</text>']
    for place, value in enumerate(values):
        x, y = left + width * GAP / 2 + place * each, _y(value, top)
        lines.append(
            f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{each - 2:.1f}" height="{HEIGHT - BOTTOM - y:.1f}" fill="{COLOURS[place]}"/>'
        )
        lines.append(f'<text x="{x + each / 2:.1f}" y="{y - 5:.1f}" text-anchor="middle" fill="#1c2128">{value:,.0f}</text>')
    return lines


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP)


def _round_up(value: float) -> float:
    """The least 1, 2, 4 or 5 times a power of ten, or 4/5 of one, that is not below."""
    power = 10.0 ** (len(str(int(value))) - 1)
    return next(step * power for step in (1, 2, 4, 5, 6, 8, 10) if step * power >= value)
