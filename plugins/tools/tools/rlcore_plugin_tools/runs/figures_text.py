"""Figures for people: three or four significant digits, a clock for seconds."""

from __future__ import annotations

__all__ = ["bounded", "clock", "figure", "signed"]


def figure(value: float | None) -> str:
    """Return ``0.512``, ``1234``, ``1.5e-06``; a dash for None."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if 0.001 <= abs(value) < 10:
        return f"{value:.3f}"
    return f"{value:.1f}" if 10 <= abs(value) < 1000 else f"{value:.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def signed(value: float | None) -> str:
    """Return a figure with its sign, for differences."""
    return "–" if value is None else f"{'+' if value >= 0 else '-'}{figure(abs(value))}"


def bounded(low: float | None, high: float | None, *, sign: bool = False) -> str:
    """Return ``[0.441, 0.583]``; "" without bounds."""
    if low is None or high is None:
        return ""
    show = signed if sign else figure
    return f"[{show(low)}, {show(high)}]"


def clock(seconds: float) -> str:
    """Return ``4.2 s``, ``12:05``, ``3:12:05``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
