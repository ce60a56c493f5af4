"""The packages of the repository: plugins, shared libraries, public pages and the floors of the core. It is read from the code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.repo.test_floors import FLOORS
from tools.dependencies import imports
from tools.pictures.svg import LARGE, SMALL, WIDTH, Picture, text_width

ROOT = Path(__file__).resolve().parents[2]
LEFT, LABEL = 12.0, 92.0
BOX = WIDTH - 2 * LEFT
LINE, GAP = 16.0, 26.0

Row = tuple[str, str]
"""Label, and the names that it has."""


def draw() -> str:
    """Return the picture."""
    kinds, users = _kinds(), _libraries()
    plugins = [(kind, ", ".join(names)) for kind, names in kinds.items()]
    pages = ", ".join(sorted(path.stem for path in (ROOT / "rlcore" / "api").glob("[a-z]*.py")))
    picture = Picture(
        "Plugins, libraries and the core",
        f"{sum(map(len, kinds.values()))} plugins above {len(users)} libraries, the public pages of rlcore, and the floors of its core.",
    )
    picture.text(14, 24, "Plugins, libraries and the core", size=LARGE, bold=True)
    picture.text(14, 43, "imports only go down; plugins see only public pages", size=SMALL, colour="muted")
    floors = [("", " · ".join(names)) for floor in reversed(FLOORS) if (names := _packages(floor))]
    top = 56.0
    for title, colour, rows in (
        ("plugins", "orange", plugins),
        ("libraries: imported by", "red", [(name, ", ".join(names)) for name, names in sorted(users.items())]),
        ("public pages of rlcore", "green", [("api", pages), ("learning", "losses, estimators"), ("testing", "fakes, suites")]),
        ("the core, floor by floor", "blue", floors),
    ):
        if top > 60:
            picture.line([(WIDTH / 2, top - GAP), (WIDTH / 2, top)], arrow=True)
        top = _box(picture, top, title, colour, rows) + GAP
    return picture.svg(top - GAP + 12)


def _box(picture: Picture, top: float, title: str, colour: str, rows: Iterable[Row]) -> float:
    """Draw a box with its title and rows; return its bottom."""
    wrapped = [(label, _wrapped(words, BOX - 20 - (LABEL if label else 0))) for label, words in rows]
    height = 30 + sum(LINE * len(lines) + 4 for _, lines in wrapped)
    picture.rect(LEFT, top, BOX, height, colour, edge="line", round_=5)
    picture.text(LEFT + 10, top + 18, title, bold=True)
    y = top + 36
    for label, lines in wrapped:
        if label:
            picture.text(LEFT + 10, y, label, size=SMALL, colour="muted")
        for words in lines:
            picture.text(LEFT + 10 + (LABEL if label else 0), y, words, size=SMALL)
            y += LINE
        y += 4
    return top + height


def _wrapped(words: str, width: float) -> list[str]:
    lines = [""]
    for word in words.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, SMALL) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _kinds() -> dict[str, list[str]]:
    """Return folder of ``plugins/`` -> names of its distributions with an entry point, which make them plugins."""
    found: dict[str, list[str]] = {}
    for path in sorted(ROOT.glob("plugins/*/*/pyproject.toml")):
        if "entry-points" in path.read_text(encoding="utf-8"):
            found.setdefault(path.parts[-3], []).append(path.parts[-2])
    return found


def _libraries() -> dict[str, list[str]]:
    """Return distribution -> the other distributions that import it."""
    owner = {path.name: path.parts[-2] for path in ROOT.glob("plugins/*/*/rlcore_*") if path.is_dir()}
    users: dict[str, set[str]] = {}
    for path in sorted(ROOT.glob("plugins/*/*/rlcore_*/**/*.py")):
        name = path.relative_to(ROOT / "plugins").parts[1]
        for one in imports(path.read_text(encoding="utf-8"), path.name):
            used = owner.get(one.module.partition(".")[0], name)
            if used != name:
                users.setdefault(used, set()).add(name)
    return {name: sorted(found) for name, found in users.items()}


def _packages(floor: Iterable[str]) -> list[str]:
    """Return the packages of a floor without the public pages."""
    names = dict.fromkeys(name.partition(".")[0] for name in floor)
    return [name for name in names if name not in ("api", "__main__")]
