"""The sidebar: the sections of the map, for users, authors and maintainers apart. A section is closed unless it has the page that is read.

Sphinx would resolve its tree of all pages anew for each page, which took half of the build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

__all__ = ["USERS", "audience_of", "sidebar"]

USERS = "Use rlcore"
Sections = Sequence[tuple[str, str, Sequence[str]]]
"""Audience, caption and pages of each section."""


def audience_of(sections: Sections, page: str) -> str:
    """Return the audience of a page; that of users if no section has it."""
    return next((audience for audience, _, pages in sections if page in pages), USERS)


def sidebar(sections: Sections, titles: Mapping[str, str], here: str, link: Callable[[str], str]) -> str:
    """Return the HTML of the sidebar of the page ``here``.

    :param titles: of the pages, by name.
    :param link: returns the address of a page as seen from this one.
    """
    text, last = "", ""
    for audience, caption, pages in sections:
        if audience != last:
            text += f'<p class="audience" role="heading" aria-level="2">{escape(audience)}</p>'
            last = audience
        opened = " open" if here in pages or (here == "index" and audience == USERS) else ""
        items = "".join(_item(titles[page], link(page), page == here) for page in pages)
        text += f'<details{opened}><summary class="caption">{escape(caption)}</summary><ul>{items}</ul></details>'
    return text


def _item(title: str, address: str, current: bool) -> str:
    named, link = (
        (' class="toctree-l1 current-page"', ' class="current reference internal"')
        if current
        else (' class="toctree-l1"', ' class="reference internal"')
    )
    return f'<li{named}><a{link} href="{escape(address)}">{escape(title)}</a></li>'
