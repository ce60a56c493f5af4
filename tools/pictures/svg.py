"""Write SVG as text: the same calls give the same text. A picture follows the light or dark scheme of the page that shows it.

A picture is narrow and tall, because its text must be legible on a phone.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH = 380.0
"""Width of each picture, in its own units. The font sizes below suit it: a phone shows the picture 358 pixels wide."""
SHOWN_WIDTH = 500
"""Pixels of width that a picture takes if the page is wide enough."""
SIZE, SMALL, LARGE = 12.5, 11.5, 15.0
"""Font sizes: normal, the least, and that of a heading."""

_COLOURS = {
    "page": ("#ffffff", "#131416"),
    "ink": ("#1c2128", "#e6edf3"),
    "muted": ("#57606a", "#a3adb8"),
    "line": ("#7d858f", "#8b949e"),
    "grid": ("#d8dee4", "#343a42"),
    "grey": ("#eef0f3", "#2a2f36"),
    "blue": ("#dbe9ff", "#17335a"),
    "orange": ("#ffe6c7", "#55391a"),
    "green": ("#d5f2d8", "#17412a"),
    "red": ("#ffdcd9", "#5a2320"),
    "strong-blue": ("#1f6feb", "#58a6ff"),
    "strong-orange": ("#c45d00", "#f0a04b"),
    "strong-green": ("#1a7f37", "#3fb950"),
    "strong-grey": ("#b4bbc4", "#59616b"),
}
"""Name -> colour in the light scheme, colour in the dark scheme."""


class Picture:
    """A drawing that grows by its methods; ``text`` of it is the SVG."""

    def __init__(self, title: str, description: str) -> None:
        """Start an empty picture. Screen readers say the title and the description."""
        self._head = f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>"
        self._parts: list[str] = []

    def text(
        self, x: float, y: float, words: str, *, colour: str = "ink", size: float = SIZE, anchor: str = "start", bold: bool = False
    ) -> None:
        """Write one line. ``y`` is its baseline.

        :raises ValueError: the line does not fit into the picture."""
        width = text_width(words, size) * (1.06 if bold else 1.0)
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        if left < 2 or left + width > WIDTH - 2:
            raise ValueError(f"the line {words!r} reaches from {left:.0f} to {left + width:.0f}; the picture is {WIDTH:.0f} wide")
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="f-{colour}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def rect(self, x: float, y: float, width: float, height: float, fill: str, *, edge: str = "", round_: float = 0.0) -> None:
        """Draw a rectangle, with an edge if it has a colour."""
        line = f" s-{edge}" if edge else ""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_:g}" class="f-{fill}{line}"/>'
        )

    def box(self, x: float, y: float, width: float, lines: Sequence[str], fill: str) -> float:
        """Draw a box with a bold first line and further lines, and return its bottom.

        :raises ValueError: a line does not fit into the box."""
        self.rect(x, y, width, height := 12 + 17.0 * len(lines), fill, edge="line", round_=5)
        for place, words in enumerate(lines):
            size = SIZE if place == 0 else SMALL
            if text_width(words, size) * 1.06 > width - 8:
                raise ValueError(f"the line {words!r} is wider than its box of {width:.0f}")
            colour = "ink" if place == 0 else "muted"
            self.text(x + width / 2, y + 19 + 17 * place, words, anchor="middle", bold=place == 0, size=size, colour=colour)
        return y + height

    def line(
        self, points: Sequence[tuple[float, float]], colour: str = "line", *, width: float = 1.4, arrow: bool = False, dashed: bool = False
    ) -> None:
        """Draw a line through the points, with a head at its end if it is an arrow."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        more = f' marker-end="url(#head-{colour})"' * arrow + ' stroke-dasharray="4 3"' * dashed
        self._parts.append(f'<polyline points="{path}" class="s-{colour}" fill="none" stroke-width="{width:g}"{more}/>')

    def area(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        """Fill what the points enclose."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polygon points="{path}" class="f-{colour}"/>')

    def dot(self, x: float, y: float, colour: str) -> None:
        """Draw a dot."""
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" class="f-{colour}"/>')

    def svg(self, height: float) -> str:
        """Return the whole picture."""
        size = f'width="{SHOWN_WIDTH}" height="{SHOWN_WIDTH * height / WIDTH:.0f}" viewBox="0 0 {WIDTH:.0f} {height:.0f}"'
        heads = "".join(_head(colour) for colour in _COLOURS if f"#head-{colour})" in "".join(self._parts))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica, Arial, sans-serif" role="img">\n'
            f"{self._head}\n<style>\n{_styles(0)}@media (prefers-color-scheme: dark) {{\n{_styles(1)}}}\n</style>\n"
            f"<defs>{heads}</defs>\n"
            f'<rect width="{WIDTH:.0f}" height="{height:.0f}" class="f-page"/>\n' + "\n".join(self._parts) + "\n</svg>\n"
        )


def text_width(words: str, size: float) -> float:
    """Return about how wide a line of a sans-serif font is."""
    narrow, wide = sum(letter in "ijltfrI.,:;'|()[]/ 1" for letter in words), sum(letter in "mwMW%@—" for letter in words)
    return size * (0.56 * (len(words) - narrow - wide) + 0.31 * narrow + 0.86 * wide)


def _head(colour: str) -> str:
    """Return the head of an arrow."""
    box = 'viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" orient="auto"'
    return f'<marker id="head-{colour}" {box}><path d="M0 0 L8 4 L0 8 z" class="f-{colour}"/></marker>'


def _styles(scheme: int) -> str:
    rules = (f".f-{name}{{fill:{both[scheme]}}}.s-{name}{{stroke:{both[scheme]}}}\n" for name, both in _COLOURS.items())
    return "".join(rules)
