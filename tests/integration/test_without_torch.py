"""The whole loop on fakes runs without torch: what is numpy stays numpy, whatever is imported on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rlcore.testing import RunTester
from rlcore.testing.run_tester import QUIET

PROGRAM = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "ray"):
            raise ImportError(f"{name} is not to be imported here")
sys.meta_path.insert(0, NoTorch())
from rlcore.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_run_of_fakes_with_the_built_in_loss_imports_no_torch(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    config = tester.fake_run(algorithm={"loss": "clipped", "estimator": "group_norm"})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "train", config, "--json"],
        cwd=tmp_path,
        env={**tester.plugins.environment, **QUIET},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
