"""What all processes of the tests share is made by one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.made_once import made_once


def test_the_first_that_asks_makes_it_and_one_that_fails_leaves_it_to_the_next(tmp_path_factory: pytest.TempPathFactory) -> None:
    made: list[str] = []

    def asked(said: str) -> Path:
        return made_once("shared-by-two", lambda folder: made.append(said) if said != "broken" else 1 / 0, tmp_path_factory)

    with pytest.raises(ZeroDivisionError):
        asked("broken")
    assert asked("first") == asked("second")
    assert made == ["first"]
