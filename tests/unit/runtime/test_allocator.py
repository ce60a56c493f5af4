"""Freed memory stays with the process, and a user's own settings of the allocator stand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

_CHURN = """
import json, resource, sys
import numpy as np
from rlcore.host.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    arrays = [np.ones(1 << 20, np.uint8) for _ in range(64)]
step()
before = faults()
for _ in range(5):
    step()
print(json.dumps(faults() - before))
"""


def page_faults(how: str, environment: Mapping[str, str]) -> int:
    """Of five steps that make and free 64 MB each."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_") and name != "GLIBC_TUNABLES"}
    command = [sys.executable, "-c", _CHURN, how]
    done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=True)
    found: int = json.loads(done.stdout)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_what_was_freed_is_used_again() -> None:
    pages = 5 * 64 * 256
    assert page_faults("plain", {}) > pages / 10
    assert page_faults("keep", {}) < pages / 100


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_settings_of_the_environment_stand() -> None:
    assert page_faults("keep", {"MALLOC_TRIM_THRESHOLD_": "131072"}) > 5 * 64 * 256 / 10
