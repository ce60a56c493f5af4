"""The site of the documentation: it builds without a warning, every link leads somewhere, its search works offline, and it fits a phone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from rlcore.api import Loss, PluginKind, Reward
from rlcore.contracts import hookspecs
from rlcore.registry.plugin_registry import Registry
from tests.chromium import BrowserPage, Chromium, browser_of_a_test
from tools.site.api_pages import api_pages
from tools.site.markdown import prose, signature
from tools.site.options_page import default_in_words
from tools.site.pages import generated_pages, relinked, site_pages
from tools.site.screenshots import PAGES, WIDTHS, take_screenshots

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


# --- the pages that are made from the code -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return generated_pages()


def headings(text: str, level: int) -> list[str]:
    return re.findall(rf"^{'#' * level} (.*)$", text, re.MULTILINE)


def test_every_command_of_the_help_has_a_section(made: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-m", "rlcore", "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    told = re.findall(r"^  ([a-z]+)  ", done.stdout, re.MULTILINE)
    assert headings(made["reference/commands"], 2) == [f"rlcore {name}" for name in told]
    assert "### rlcore env build" in made["reference/commands"]
    assert "| `--nodes N` | nodes of the job \\[1\\] |" in made["reference/commands"]


def test_every_setting_has_an_anchor_with_its_flags_bounds_and_default(made: dict[str, str]) -> None:
    sections = dict(re.findall(r"^### (\S+)\n\n(.*?)(?=^\(|\Z)", made["reference/options"], re.MULTILINE | re.DOTALL))
    paths = subprocess.run([sys.executable, "-c", SETTINGS], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert [path for path in paths if path not in sections] == []
    assert sections["training.lora_rank"] == (
        "Rank of LoRA adapters; 0: full training.\n\n- Flags: `--lora-rank`\n- Values: a whole number from 0 to 16384\n- Default: `0`\n\n"
    )
    assert "(training.lora_rank)=\n" in made["reference/options"]


SETTINGS = """
from rlcore.config.run_config import RunConfig
plain = RunConfig().model_dump()
for section, values in plain.items():
    for key in values if isinstance(values, dict) else ():
        print(f"{section}.{key}")
"""


def test_every_hook_is_listed_with_its_signature(made: dict[str, str]) -> None:
    page = made["reference/hooks"]
    assert headings(page, 3) == [name for name in vars(hookspecs) if name.startswith("rlcore_")]
    assert "def rlcore_groups_scored(groups: Sequence[Group], version: int): ..." in page


def test_every_installed_plugin_is_on_the_page_of_its_kind(made: dict[str, str]) -> None:
    registry = Registry.discover()
    for kind in PluginKind:
        page = made[f"reference/kinds/{kind}"]
        assert [name for name in registry.names(kind) if f"[`{name}`]" not in page] == []
    assert "`rewards.options.strictness`" in made["reference/kinds/reward"]
    assert "Its class derives from [`Reward`](../../api/rewards.md#reward)" in made["reference/kinds/reward"]


def test_every_public_name_is_explained_once_and_rewards_come_first() -> None:
    pages = api_pages()
    assert list(pages)[1:3] == ["api/rewards", "api/algorithms"]
    names = [name for page in pages.values() for name in headings(page, 2)]
    assert {name for name, count in Counter(names).items() if count > 1} == {"ChatTokenizer"}  # a protocol, and a class of the kit
    assert len(names) > 300
    assert {"Reward", "RewardInput", "Score"} < set(headings(pages["api/rewards"], 2))
    members = headings(pages["api/rewards"], 3)
    assert [name for name in members if name.startswith("Reward.")] == [
        f"Reward.{name}" for name in vars(Reward) if not name.startswith("_") and callable(getattr(Reward, name))
    ]


def test_a_docstring_becomes_lists_and_its_marks_are_escaped() -> None:
    text = prose(
        """Return *n* of [R].

        ``a``, ``b`` (x): first,
        continued.
        ``c``: second | third.

        :param step: counts
            from 1.
        :raises ConfigError: never.

        >>> f(1)
        """
    )
    assert text.split("\n") == [
        *("Return \\*n\\* of \\[R\\].", "", "- ``a``, ``b`` (x): first, continued.", "- ``c``: second | third.", "", ""),
        *("Arguments:", "", "- `step`: counts from 1.", "", "Raises:", "", "- `ConfigError`: never.", ""),
        *("```pycon", ">>> f(1)", "```", "", ""),
    ]
    assert signature("per_token", Loss.per_token).startswith("per_token(\n    self,\n    logprobs: torch.Tensor,\n")
    assert [default_in_words(value) for value in ((), True, (0.9, 0.95), 1e-6)] == ["none", "`true`", "`0.9 0.95`", "`1e-06`"]


def test_links_of_the_repository_become_links_of_the_site() -> None:
    pages = site_pages()
    index = relinked(ROOT / "docs" / "README.md", pages)
    assert [f"]({link})" in index for link in ("start.md", "files/first_steps.ipynb", "how_to/algorithms.md")] == [True] * 3
    package = next(path for path, name in pages.items() if name == "packages/harbor")
    assert "](../how_to/sandbox.md#sessions)" in relinked(package, pages)


# --- the site ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; its build said nothing but one JSON object."""
    folder = tmp_path_factory.mktemp("site") / "site"
    words = [sys.executable, "-m", "tools.site", "--out", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["pages"] > len(site_pages())
    assert told["mb"] < 30
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    yield from browser_of_a_test()


def pages_of(site: Path) -> list[str]:
    """The pages that somebody wrote, or that are made from the code; not those of the search and of the index of names."""
    return sorted({path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {"search.html", "genindex.html"})


@pytest.mark.full
def test_no_link_is_broken_and_no_address_is_elsewhere(site: Path) -> None:
    assert broken(site) == []
    loaded = re.compile(r'<(?:script|img|link|iframe)\b[^>]*?(?:src|href)="((?:https?:)?//[^"]*)"')
    assert [found for page in site.rglob("*.html") if (found := loaded.findall(page.read_text(encoding="utf-8")))] == []


@pytest.mark.full
def test_the_sidebar_leads_to_every_page_and_keeps_the_audiences_apart(site: Path) -> None:
    index = (site / "index.html").read_text(encoding="utf-8")
    tree = index.partition('<div class="sidebar-tree">')[2].partition("</div>")[0]
    linked = re.findall(r'href="([^"]+)"', tree)
    assert sorted([*linked, "index.html"]) == pages_of(site)
    assert re.findall(r'class="audience"[^>]*>([^<]*)', tree) == ["Use rlcore", "Write plugins", "Maintain rlcore"]
    author = (site / "authors" / "plugins.html").read_text(encoding="utf-8")
    assert '<p class="audience-of-page">Write plugins</p>' in author
    assert '<p class="audience-of-page">' not in (site / "start.html").read_text(encoding="utf-8")


def search(page: BrowserPage, words: str) -> list[str]:
    """Type words into the box of the sidebar, press Enter, and return the titles of the hits."""
    page.wait("!!document.querySelector('.sidebar-search')")
    page.evaluate("document.querySelector('.sidebar-search').focus()")
    page.call("Input.insertText", text=words)
    page.evaluate("document.querySelector('.sidebar-search-container').submit()")
    page.wait(
        "document.querySelectorAll('#search-results li a').length && document.querySelector('.search-summary').textContent.match(/\\d/)"
    )
    hits: list[str] = page.evaluate("[...document.querySelectorAll('#search-results li a')].map((link) => link.getAttribute('href'))")
    return hits


@pytest.mark.full
@pytest.mark.parametrize("served", [False, True], ids=["file", "http"])
def test_the_search_finds_a_setting_offline(site: Path, chromium: Chromium, served: bool) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}" if served else site.as_uri()
    try:
        with chromium.open(f"{base}/how_to/cluster.html") as page:
            hits = search(page, "lora_rank")
            assert any("reference/options.html#training-lora-rank" in hit for hit in hits), hits
            outside = [address for address in page.requests() if not address.startswith((base, "data:"))]
            assert outside == []
    finally:
        server.shutdown()
        server.server_close()


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files and writes no log."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


WIDER = """[...(document.documentElement.scrollWidth > innerWidth ? [document.body] : []), ...document.querySelectorAll('article *')]
  .filter((one) => one === document.body || one.getBoundingClientRect().right > innerWidth + 1)
  .filter((one) => !one.parentElement.closest('pre, table, .table-wrapper, .highlight, svg'))
  .slice(0, 3).map((one) => one.outerHTML.slice(0, 120))"""
"""What sticks out of the window: the theme cuts it off there. Code and tables scroll in a box of their own."""


@pytest.mark.full
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_window(site: Path, chromium: Chromium, width: int) -> None:
    wide = []
    with chromium.open("about:blank", width=width) as page:
        for name in pages_of(site):
            page.call("Page.navigate", url=(site / name).as_uri())
            page.wait(f"location.pathname.endsWith({json.dumps('/' + name)}) && document.readyState === 'complete'")
            wide += [(name, found) for found in [page.evaluate(WIDER)] if found]
    assert wide == [], wide


@pytest.mark.full
def test_ten_pages_can_be_looked_at(site: Path, chromium: Chromium, tmp_path: Path) -> None:
    take_screenshots(site, tmp_path)
    assert len(list(tmp_path.glob("*.png"))) == len(PAGES) * len(WIDTHS) == 20
