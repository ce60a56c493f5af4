"""The picture of the architecture page is what the code gives: ``python -m tools.picture`` draws it anew."""

from __future__ import annotations

from tools.picture import PAGE, picture


def test_the_picture_is_that_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == picture(), "type: python -m tools.picture"
