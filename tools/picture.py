"""Draws docs/explanation/architecture.svg from the code: ``python -m tools.picture``; ``--check`` exits 1 if it is stale.

A box is a unit of the floors test, or a distribution of ``plugins/``, with the public pages that it imports. A
line joins a unit to each one that it imports and that it does not reach through another one. The same code gives the same text.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from tests.repo.test_floors import FLOORS, unit
from tools.dependencies import imports

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "architecture.svg"
WIDTH, BOX, HEIGHT, GAP = 1180, 34, 74, 10
CORE, PUBLIC, PLUGIN = "#dbe9ff", "#d5f2d8", "#ffe9cc"

Links = Mapping[str, frozenset[str]]


def main() -> int:
    """Write the picture, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is not what the code gives")
    text = picture()
    if parser.parse_args().check:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


def picture() -> str:
    """The SVG."""
    core, plugins = _core(), _plugins()
    names, half = sorted(plugins.links), (len(plugins.links) + 1) // 2
    rows = [row for row in (names[:half], names[half:], *(_row(floor) for floor in reversed(FLOORS))) if row]
    places = {name: place for number, row in enumerate(rows) for name, place in _places(row, number).items()}
    links = _reduced(core.links)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {len(rows) * HEIGHT + 10}" font-family="sans-serif" font-size="12">',
        "<title>What of rlcore imports what: plugins above, the core below, floor by floor</title>",
        f'<rect width="{WIDTH}" height="{len(rows) * HEIGHT + 10}" fill="#ffffff"/>',
    ]
    parts += [_line(places[upper], places[lower]) for upper in sorted(links) for lower in sorted(links[upper])]
    parts += [_box(name, "", places[name], _colour(name)) for row in rows[2:] for name in row]
    parts += [_box(name, ", ".join(sorted(plugins.links[name])), places[name], PLUGIN) for name in names]
    return "\n".join([*parts, "</svg>"]) + "\n"


class Units:
    """``links``: unit -> the units that it imports."""

    def __init__(self) -> None:
        self.links: dict[str, frozenset[str]] = {}

    def add(self, name: str, source: str) -> None:
        imported = (one.module.split(".") for one in imports(source, name) if one.module.startswith("rlcore.") and not one.by)
        names = {found for parts in imported if (found := _shown(unit(parts[1:]))) in SHOWN and found != name}
        self.links[name] = self.links.get(name, frozenset()) | names


def _shown(name: str) -> str:
    """The units of contracts/ and host/ share a box."""
    package = name.partition(".")[0]
    return package if package in ("contracts", "host") else name


SHOWN = frozenset(_shown(name) for floor in FLOORS for name in floor if name != "__main__")


def _row(floor: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(_shown(name) for name in floor if name != "__main__"))


def _core() -> Units:
    found = Units()
    for path in sorted((ROOT / "rlcore").rglob("*.py")):
        name = _shown(unit(path.relative_to(ROOT / "rlcore").with_suffix("").parts))
        if name in SHOWN:
            found.add(name, path.read_text(encoding="utf-8"))
    return found


def _plugins() -> Units:
    found = Units()
    for path in sorted(ROOT.glob("plugins/*/*/rlcore_*/**/*.py")):
        found.add("/".join(path.relative_to(ROOT / "plugins").parts[:2]), path.read_text(encoding="utf-8"))
    return found


def _reduced(links: Links) -> Links:
    """Without what is reached through another link: a picture of every import is a black one."""

    def reach(name: str) -> frozenset[str]:
        return links.get(name, frozenset()).union(*(reach(other) for other in links.get(name, ())))

    return {name: frozenset(below - frozenset().union(*(reach(other) for other in below))) for name, below in links.items()}


def _places(row: list[str], number: int) -> dict[str, tuple[float, float, float]]:
    """Box -> (left, top, width), side by side over the whole width."""
    width = min(180.0, (WIDTH - GAP) / max(1, len(row)) - GAP)
    left = (WIDTH - len(row) * (width + GAP) + GAP) / 2
    return {name: (left + place * (width + GAP), number * HEIGHT + 10.0, width) for place, name in enumerate(row)}


def _colour(name: str) -> str:
    return PUBLIC if name.partition(".")[0] in ("api", "learning", "testing") else CORE


def _box(name: str, below: str, place: tuple[float, float, float], colour: str) -> str:
    left, top, width = place
    size, small = min(12.0, 1.7 * width / max(1, len(name))), min(9.0, 1.8 * width / max(1, len(below)))
    middle = f'x="{left + width / 2:.0f}" text-anchor="middle"'
    return (
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{BOX}" rx="4" fill="{colour}" stroke="#8a8f98"/>'
        f'<text {middle} y="{top + (15 if below else 21):.0f}" font-size="{size:.1f}" fill="#1c2128">{escape(name)}</text>'
        f'<text {middle} y="{top + 28:.0f}" font-size="{small:.1f}" fill="#57606a">{escape(below)}</text>'
    )


def _line(upper: tuple[float, float, float], lower: tuple[float, float, float]) -> str:
    x1, y1 = upper[0] + upper[2] / 2, upper[1] + BOX
    x2, y2 = lower[0] + lower[2] / 2, lower[1]
    curve = f"M{x1:.0f} {y1:.0f} C{x1:.0f} {(y1 + y2) / 2:.0f} {x2:.0f} {(y1 + y2) / 2:.0f} {x2:.0f} {y2:.0f}"
    return f'<path d="{curve}" fill="none" stroke="#8a8f98"/>'


if __name__ == "__main__":
    sys.exit(main())
