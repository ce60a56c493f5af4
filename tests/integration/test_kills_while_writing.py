"""SIGKILL while logs and files are written: a reader meets one half last line at the most, and a resume leaves whole lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlcore.testing.run_tester import QUIET

ROOT = Path(__file__).parents[2]


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_a_kill_leaves_a_resume_makes_whole_lines_of_it(tmp_path: Path, seed: int) -> None:
    """A process of its own forks: this one may have Ray in it."""
    words = [sys.executable, "-m", "tests.crash.writing", str(tmp_path / "run"), "30", str(seed)]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **QUIET}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == 30
    assert found["steps"] >= 3
