"""The site of the documentation builds without a warning, every link in it leads somewhere, and its search knows the pages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from tools.site.__main__ import relinked, site_pages

ROOT = Path(__file__).parents[2]


def broken(site: Path) -> list[str]:
    """The links between pages and files of the site that lead nowhere."""
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    ids = {page: set(re.findall(r'\bid="([^"]*)"', text)) for page, text in texts.items()}
    found = []
    for page, text in texts.items():
        for link in set(re.findall(r'<a\b[^>]*?\bhref="(?!https?:|mailto:)([^"]*)"', text)):
            name, _, anchor = unquote(link).partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists() or (anchor and target in ids and anchor not in ids[target]):
                found.append(f"{page.relative_to(site)}: {link}")
    return found


@pytest.mark.full
def test_the_site_builds_and_no_link_is_broken(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tools.site", "--out", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["pages"] > len(site_pages())
    assert told["mb"] < 30
    assert broken(tmp_path / "site") == []
    found = (tmp_path / "site" / "searchindex.js").read_text(encoding="utf-8")
    assert "mismatch_correct" in found  # Sphinx keeps the stems of words


def test_links_of_the_repository_become_links_of_the_site() -> None:
    pages = site_pages()
    index = relinked(ROOT / "docs" / "README.md", pages)
    assert [f"]({link})" in index for link in ("readme.md", "files/first_steps.ipynb", "how_to/algorithms.md")] == [True] * 3
    package = next(path for path, name in pages.items() if name == "packages/harbor")
    assert "](../how_to/sandbox.md#sessions)" in relinked(package, pages)
