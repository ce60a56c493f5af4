"""Which levels of the sandbox this machine can give: tests skip where an ingredient is missing, and fail where it is there to no avail.

``RLCORE_TEST_LEVELS`` (levels, with spaces between) names those that must be there: where it is set, as in CI, one that is missing fails.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

import pytest
from rlcore_plugin_sandbox.jail import landlock

__all__ = ["LEVELS", "missing", "need"]

LEVELS = ("namespaces", "landlock")


def need(level: str) -> None:
    """Skip the test where this machine lacks an ingredient of the level; fail it where the level must be there."""
    reason = missing(level)
    if reason is None:
        return
    must = os.environ.get("RLCORE_TEST_LEVELS", "").split()
    if unknown := set(must) - set(LEVELS):
        pytest.fail(f"RLCORE_TEST_LEVELS names {', '.join(sorted(unknown))}; the levels are {' and '.join(LEVELS)}")
    if level in must:
        pytest.fail(f"RLCORE_TEST_LEVELS asks for level {level}, which cannot be had: {reason}")
    pytest.skip(f"no level {level} here: {reason}")


@functools.cache
def missing(level: str) -> str | None:
    """What this machine lacks for a level; None where it lacks nothing."""
    if level == "landlock":
        return None if landlock.abi() else "this kernel has no Landlock"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    walls = ["--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/"]
    tried = subprocess.run(["bwrap", *walls, "/bin/true"], capture_output=True, text=True)
    return (tried.stderr.strip() or f"bwrap ends with {tried.returncode}") if tried.returncode else None
