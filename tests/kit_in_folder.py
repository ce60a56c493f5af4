"""Run a suite of the kit that a page shows, in the folder of a test."""

from __future__ import annotations

import sys

import pytest

from rlcore.testing.run_tester import RunTester


def kit_passes(tester: RunTester, monkeypatch: pytest.MonkeyPatch, name: str, plugin: str, suite: str) -> bool:
    """Return whether the suite passes that tests the plugin; both are the texts of modules, ``NAME.py`` and ``test_NAME.py``."""
    tester.write(f"{name}.py", plugin)
    tester.write(f"test_{name}.py", suite)
    monkeypatch.syspath_prepend(str(tester.folder))
    try:
        return pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tester.folder / f"test_{name}.py")]) == 0
    finally:
        for module in (name, f"test_{name}"):
            sys.modules.pop(module, None)
