"""A Chromium for the tests that look at the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chromium import Chromium, browser_of_a_test


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    yield from browser_of_a_test()
