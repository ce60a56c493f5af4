"""Pictures of ten pages of the site in Chromium, as a reader at a desk and a reader with a phone see them."""

from __future__ import annotations

from pathlib import Path

from tests.chromium import Chromium

__all__ = ["PAGES", "WIDTHS", "take_screenshots"]

PAGES = (
    *("index", "start", "tutorials/first_run", "tutorials/own_reward", "reference/options", "reference/hooks", "api/rewards"),
    *("reference/errors", "explanation/data_flow", "authors/observers"),
)
WIDTHS = (1280, 390)


def take_screenshots(site: Path, folder: Path) -> None:
    """Write ``PAGE-WIDTH.png`` of the first screen of each page."""
    folder.mkdir(parents=True, exist_ok=True)
    with Chromium() as browser:
        for name in PAGES:
            for width in WIDTHS:
                with browser.open((site / f"{name}.html").as_uri(), width=width) as page:
                    page.wait("document.readyState === 'complete'")
                    page.screenshot(folder / f"{name.replace('/', '_')}-{width}.png")
