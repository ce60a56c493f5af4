"""docs/README.md links every page once, no link of a page is dead, and every mention of a page is a link."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MAP = DOCS / "README.md"
PAGES = sorted(DOCS.rglob("*.md"))
LINKED = [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "recipes" / "README.md"]
READMES = sorted(ROOT.glob("plugins/*/*/README.md"))
LINK = re.compile(r"\]\((?!https?:)([^()\s]*)\)")


def without_blocks(page: Path) -> str:
    """The text of a page without blocks of code and without comments."""
    return re.sub(r"^```.*?^```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead(page: Path) -> list[str]:
    """The links of a page whose file or heading does not exist."""
    found = []
    for link in LINK.findall(without_blocks(page)):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


def test_the_map_has_every_page_once() -> None:
    counts = Counter(re.findall(r"\]\(([\w/]+\.md)\)", MAP.read_text(encoding="utf-8")))
    assert counts == Counter({page.relative_to(DOCS).as_posix(): 1 for page in PAGES if page != MAP})


def test_the_first_page_links_the_map() -> None:
    assert "](docs/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [*LINKED, *READMES], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_link_is_dead(page: Path) -> None:
    assert dead(page) == []


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_mention_of_a_page_is_a_link(page: Path) -> None:
    prose = re.sub(r"\[[^\]]*\]\([^()]*\)", "", without_blocks(page))
    names = "|".join(re.escape(one.name) for one in PAGES if one != MAP)
    assert re.findall(rf"(?:docs/\w*/?|(?<![\w/]))(?:{names})\b", prose) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading, with `code`\n[a](#a-heading-with-code) [b](#other) [c](page.md#no) [d](gone.md) [e](https://x.y)\n")
    assert dead(page) == ["#other", "page.md#no", "gone.md"]


def test_the_changelog_has_short_lines() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 140] == []
    assert len([line for line in lines if line.startswith("- ")]) <= 150
