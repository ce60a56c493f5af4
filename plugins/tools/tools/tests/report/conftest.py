"""A Chromium for the tests that look at the page; without one they are skipped, unless ``RLCORE_TEST_BROWSER`` says that it must be
there."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.chromium import Chromium, chromium_program


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    if chromium_program() is None and not os.environ.get("RLCORE_TEST_BROWSER"):
        pytest.skip("there is no Chromium: apt-get install chromium")
    with Chromium() as browser:
        yield browser
