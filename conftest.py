"""What holds for every test of the repository: a test without a marker is a fast one."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not any(item.get_closest_marker(name) for name in ("fast", "full", "nightly")):
            item.add_marker(pytest.mark.fast)
