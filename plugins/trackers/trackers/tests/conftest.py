"""What W&B leaves in a process does not reach the tests after these."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _exits_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B replaces ``sys.exit`` and ``sys.excepthook``, and does not put them back."""
    monkeypatch.setattr(sys, "exit", sys.exit)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
