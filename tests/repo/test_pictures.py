"""Pictures of the documentation are what their commands give, and a phone shows their text large enough to read."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tools.pictures import bubble, ledger
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


def test_the_figures_of_a_trace_are_those_after_the_warm_up() -> None:
    """Six updates take 1 s each, two take 0.5 s. The trainer computes 0.2 s of each of these, the producer 0.1 s."""
    threads = [
        {"ph": "M", "name": "thread_name", "tid": tid, "args": {"name": name}} for tid, name in ((1, "producer-0"), (2, "trainer-0"))
    ]
    begins = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 5.5, 6.0]
    parts = [
        (tid, name, begin + after, seconds)
        for begin in begins
        for tid, name, after, seconds in (
            (1, "generation", 0.0, 0.1),
            (2, "waiting for data", 0.0, 0.1),
            (2, "log probabilities", 0.1, 0.05),
            (2, "training", 0.15, 0.15),
            (2, "weights", 0.3, 0.2),
        )
    ]
    slices = [{"ph": "X", "tid": tid, "name": name, "ts": 1e6 * start, "dur": 1e6 * seconds} for tid, name, start, seconds in parts]
    found = bubble.excerpt({"traceEvents": [*threads, *slices]})
    assert found["busy"] == {"producer": 0.2, "trainer": 0.4}
    assert found["seconds_per_update"] == 0.5
    assert [part for part in found["slices"] if part[1] == "generation"] == [
        ("producer", "generation", 0.0, 0.1),
        ("producer", "generation", 0.5, 0.6),
    ]
    assert {part[1] for part in found["slices"]} == {"generation", "log probabilities", "training", "weights"}


def test_the_ledger_of_the_picture_trains_each_token_of_four_calls_once() -> None:
    calls = ledger.episode()
    result = calls[0][1].trained()
    assert result.calls == tuple(calls[place][0].id for place in (0, 3, 1, 2))
    assert [int(segment.policy_mask.sum()) for segment in result.segments] == [11 + 5, 12 + 5]


def test_the_picture_of_the_packages_follows_the_imports() -> None:
    text = PICTURES["packages"]()
    for name in ("rloo", "textarena", "contracts", "extraction"):
        assert f">{name}" in text or f" {name}" in text
    assert re.search(r">serving</text>\n<text [^>]*>sglang, vllm</text>", text)
