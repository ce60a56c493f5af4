"""The blocks of docs/how_to/sweeps.md, and a project of fakes in which they are run as they stand."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rlcore.testing import RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET

__all__ = ["BLOCKS", "PAGE", "SweepProject"]

PAGE = (Path(__file__).parents[1] / "docs" / "how_to" / "sweeps.md").read_text(encoding="utf-8")
BLOCKS: Mapping[str, str] = dict(re.findall(r"<!-- test: (\S+) -->\n```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))


class SweepProject:
    """A ``run.toml`` of two updates with a held-out task, and ``rlcore`` as a command of the shell."""

    def __init__(self, folder: Path) -> None:
        self.tester = RunTester(folder).with_fakes()
        self.tester.fake_data("held.jsonl")
        self.tester.fake_run(eval={"eval_dataset": {"letters": "held.jsonl"}}, run={"num_episodes": 2, "max_steps": 2})
        command = self.tester.write("bin/rlcore", f"#!{sys.executable}\n{PROGRAM.replace('; ', chr(10))}\n")
        command.chmod(command.stat().st_mode | stat.S_IXUSR)

    def shell(self, block: str) -> str:
        """Run a block by a shell that ends at the first command that fails; what it printed on standard output."""
        return self._run(["sh", "-ec", block])

    def python(self, name: str, **environment: str) -> str:
        """Run a program of the page; the same."""
        self.tester.write(name, BLOCKS[name])
        return self._run([sys.executable, name], **environment)

    def runs(self, project: str) -> list[Path]:
        """The run folders of a project."""
        return sorted((self.tester.folder / "runs" / project).iterdir())

    def _run(self, words: list[str], **environment: str) -> str:
        folder = self.tester.folder
        path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        settings = {**os.environ, **self.tester.plugins.environment, **QUIET, "PATH": path, **environment}
        done = subprocess.run(words, cwd=folder, env=settings, capture_output=True, encoding="utf-8", timeout=400, check=False)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout
