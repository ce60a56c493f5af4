"""Pictures of the documentation are what their commands give, and a phone shows their text large enough to read."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tools.pictures.__main__ import FOLDER, MEASURED, PICTURES
from tools.pictures.svg import Picture

PHONE = 358
"""Pixels that a page leaves for a picture if the screen is 390 pixels wide."""
LEAST = 10.5


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_its_command_gives(name: str) -> None:
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == PICTURES[name](), f"type: python -m tools.pictures {name}"


def test_each_file_of_the_folder_has_a_command() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.svg" for name in PICTURES}
    assert set(MEASURED) <= set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_phone_shows_the_text_large_enough(name: str) -> None:
    text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    found = re.search(r'viewBox="0 0 (\d+) ', text)
    assert found is not None
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', text)]
    assert min(sizes) * PHONE / float(found[1]) >= LEAST


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_a_title_a_description_and_two_colour_schemes(name: str) -> None:
    root = ElementTree.fromstring((FOLDER / f"{name}.svg").read_text(encoding="utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{space}title")
    assert root.findtext(f"{space}desc")
    assert "prefers-color-scheme: dark" in (root.findtext(f"{space}style") or "")
    classes = {name for part in root.iter() for name in part.get("class", "").split()}
    styles = root.findtext(f"{space}style") or ""
    assert all(styles.count(f".{name}{{") == 2 for name in classes), "a colour is missing"


def test_text_that_does_not_fit_is_an_error() -> None:
    picture = Picture("title", "description")
    with pytest.raises(ValueError, match="reaches from"):
        picture.text(300, 20, "a line that is too long for its place")
    with pytest.raises(ValueError, match="wider than its box"):
        picture.box(10, 10, 60, ["a line that is too long"], "blue")
