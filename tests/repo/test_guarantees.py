"""docs/explanation/guarantees.md names a proof of each promise, and each proof exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| promise")]


def test_each_promise_has_a_proof() -> None:
    assert len(ROWS) > 25
    for promise, proof, _ in ROWS:
        assert re.search(r"`(?:tests/|plugins/|make )[^`]+`", proof), promise


def test_each_test_and_each_command_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for _, proof, _ in ROWS:
        for path in re.findall(r"`((?:tests|plugins)/[^`]+)`", proof):
            assert (ROOT / path).is_file(), path
        assert set(re.findall(r"`make ([a-z-]+)`", proof)) <= targets
