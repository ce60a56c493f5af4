"""The sources of the site: the pages of the repository with links of the site, the pages made from the code, and the sidebar's sections."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from rlcore.registry.plugin_registry import Registry
from tools.site.api_pages import api_pages
from tools.site.commands_page import commands_page
from tools.site.hooks_page import hooks_page
from tools.site.kinds_pages import kinds_pages
from tools.site.options_page import options_page
from tools.site.sidebar import USERS

__all__ = ["generated_pages", "relinked", "sections", "site_pages", "write_source"]

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MAP = DOCS / "README.md"
PICTURES = (".svg", ".png")
_LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^()\s#]*)(#[^()\s]*)?(\))")
_AUTHORS, _MAINTAINERS = "Write plugins", "Maintain rlcore"
_FIRST_OF_AUTHORS, _FIRST_OF_MAINTAINERS = "For authors of plugins", "For maintainers"
_LISTED = {
    "Reference": {
        "reference/commands": "every command with its usage and options",
        "reference/options": "every setting of a run: path, flags, values, default",
    },
    _FIRST_OF_AUTHORS: {
        "reference/hooks": "every hook: its signature, and when it is called",
        "reference/kinds": "every kind of plugin: its base class and spec, and the plugins of this repository with their options",
        "reference/api": "every public name, those first that authors need first",
    },
}
"""Pages made from the code that the index lists, by section of the map."""


def site_pages() -> dict[Path, str]:
    """Return file of the repository -> name on the site, without its suffix."""
    pages = {path: path.relative_to(DOCS).with_suffix("").as_posix() for path in sorted(DOCS.rglob("*.md"))}
    packages = {path: f"packages/{path.parent.name}" for path in sorted(ROOT.glob("plugins/*/*/README.md"))}
    return {**pages, **packages, MAP: "index", ROOT / "README.md": "readme", ROOT / "CHANGELOG.md": "changelog"}


def generated_pages() -> dict[str, str]:
    """Return name on the site -> text of the pages that are made from the code."""
    registry = Registry.discover()
    single = {"reference/commands": commands_page(registry), "reference/options": options_page(), "reference/hooks": hooks_page()}
    return {**single, **kinds_pages(registry, api := api_pages()), **api}


def relinked(path: Path, pages: Mapping[Path, str]) -> str:
    """Return the text of a page with links of the site. A link to a file that is not on the site becomes plain text."""
    depth = pages[path].count("/")

    def link(match: re.Match[str]) -> str:
        target = (path.parent / match[2]).resolve()
        if target in pages:
            return f"{match[1]}{'../' * depth}{pages[target]}.md{match[3] or ''}{match[4]}"
        if target.suffix in PICTURES:
            return f"{match[1]}{'../' * depth}{target.relative_to(DOCS)}{match[4]}"
        if target.suffix == ".ipynb":
            return f"{match[1]}{'../' * depth}files/{target.name}{match[4]}"
        return "]{.file}"

    return _LINK.sub(link, path.read_text(encoding="utf-8"))


def sections(names: list[str]) -> list[tuple[str, str, list[str]]]:
    """Return audience, caption and pages of each section of the sidebar.

    :param names: of the pages that are made from the code, and of the packages.
    """
    found: list[tuple[str, str, list[str]]] = []
    audience = USERS
    for section in re.split(r"^## ", MAP.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        caption = section.partition("\n")[0]
        pages = re.findall(r"\]\(([\w/]+)\.md", section)
        audience = {_FIRST_OF_AUTHORS: _AUTHORS, _FIRST_OF_MAINTAINERS: _MAINTAINERS}.get(caption, audience)
        if audience == _AUTHORS and caption == _FIRST_OF_AUTHORS:
            found.append((USERS, "Packages", [name for name in names if name.startswith("packages/")]))
        found.append(
            (audience, caption, [*_LISTED.get(caption, ()), *pages] if caption == "Reference" else [*pages, *_LISTED.get(caption, ())])
        )
        if caption == _FIRST_OF_AUTHORS:
            found.append((_AUTHORS, "Kinds of plugins", [name for name in names if name.startswith("reference/kinds/")]))
            found.append((_AUTHORS, "Python API", [name for name in names if name.startswith("api/")]))
    found[0][2].insert(0, "readme")
    found[-1][2].append("changelog")
    return found


def write_source(source: Path) -> None:
    """Write the pages as Sphinx reads them."""
    pages = site_pages()
    texts = {name: relinked(path, pages) for path, name in pages.items()} | (made := generated_pages())
    found = sections([*made, *pages.values()])
    texts["index"] = _index(texts["index"]) + "".join(_tree(caption, names) for _, caption, names in found)
    for name, text in texts.items():
        target = source / f"{name}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for picture in (path for path in DOCS.rglob("*") if path.suffix in PICTURES):
        (source / picture.relative_to(DOCS)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, source / picture.relative_to(DOCS))
    (source / "files").mkdir()
    shutil.copyfile(ROOT / "examples" / "first_steps.ipynb", source / "files" / "first_steps.ipynb")
    (source / "sections.json").write_text(json.dumps(found), encoding="utf-8")


def _index(text: str) -> str:
    """Return the map with the pages that are made from the code."""
    for caption, listed in _LISTED.items():
        lines = "".join(f"- [{_TITLES[name]}]({name}.md): {said}\n" for name, said in listed.items())
        before, head, after = text.partition(f"## {caption}\n\n")
        text = before + head + (lines if head else "") + after
    return text


_TITLES = {
    "reference/commands": "Commands",
    "reference/options": "Settings of a run",
    "reference/hooks": "Hooks",
    "reference/kinds": "Kinds of plugins",
    "reference/api": "The Python API",
}


def _tree(caption: str, names: list[str]) -> str:
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
