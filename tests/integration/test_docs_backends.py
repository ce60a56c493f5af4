"""The engine of docs/authors/backends.md and the trainer of docs/authors/trainers.md keep the rules and train the quickstart's
model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.testing import RunTester
from rlcore.testing.run_tester import QUIET

DOCS = Path(__file__).parents[2] / "docs"
PYTEST = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))"


@dataclass(frozen=True)
class PrintedBackend:
    """A package that a page prints: ``plugin`` its name without the prefix, ``rules`` the least that its suite has."""

    page: str
    plugin: str
    show: tuple[str, ...]
    summary: str
    rules: int
    flags: tuple[str, ...]

    @property
    def files(self) -> dict[str, str]:
        """Path inside the package's folder -> text."""
        folder = "rlcore-plugin-" + self.plugin.replace("_", "-")
        page = (DOCS / self.page).read_text(encoding="utf-8")
        return dict(re.findall(rf"<!-- test: {folder}/(\S+) -->\n```\w+\n(.*?)^```$", page, re.DOTALL | re.MULTILINE))

    def installed(self, folder: Path) -> RunTester:
        """A project that finds the package."""
        tester, inside = RunTester(folder, in_process=True), f"rlcore_plugin_{self.plugin}/"
        package = {path.removeprefix(inside): text for path, text in self.files.items() if path.startswith(inside)}
        tester.plugins.install(self.plugin, package.pop("__init__.py"), files=package)
        return tester


ENGINE = PrintedBackend(
    page="authors/backends.md",
    plugin="plain",
    show=("inference", "plain"),
    summary="a forward pass over the whole sequence for each token",
    rules=40,
    flags=("-b", "plain", "--mismatch-correction", "none"),
)
TRAINER = PrintedBackend(
    page="authors/trainers.md",
    plugin="simple",
    show=("training", "simple"),
    summary="AdamW in one process on the CPU, padded rows",
    rules=25,
    flags=("--trainer", "simple"),
)
BOTH = pytest.mark.parametrize("printed", [ENGINE, TRAINER], ids=lambda printed: printed.plugin)


@BOTH
def test_the_page_has_the_four_files(printed: PrintedBackend) -> None:
    package = f"rlcore_plugin_{printed.plugin}"
    modules = [f"{package}/__init__.py", next(path for path in printed.files if path.startswith(package) and "__init__" not in path)]
    assert set(printed.files) == {"pyproject.toml", *modules, next(path for path in printed.files if path.startswith("tests/test_"))}


@BOTH
def test_the_backend_is_found_without_being_imported(printed: PrintedBackend, tmp_path: Path) -> None:
    assert printed.summary in printed.installed(tmp_path).run("show", *printed.show).assert_ok().stdout


@BOTH
@pytest.mark.full
def test_the_backend_keeps_the_rules(printed: PrintedBackend, tmp_path: Path) -> None:
    tester = printed.installed(tmp_path)
    (rules,) = [tester.write(path.removeprefix("tests/"), text) for path, text in printed.files.items() if path.startswith("tests/")]
    environment = {**os.environ, **tester.plugins.environment, **QUIET}
    done = subprocess.run([sys.executable, "-c", PYTEST, str(rules)], cwd=tester.folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > printed.rules


@BOTH
@pytest.mark.full
def test_the_backend_trains_the_quickstart(printed: PrintedBackend, tmp_path: Path) -> None:
    flags = ["--max-steps", "2", "-tbs", "4", "-ei", "0", "--max-staleness", "0", *printed.flags]
    outcome = printed.installed(tmp_path).run("quickstart", "demo", *flags, "--json").assert_ok()
    assert outcome.json["steps"] == 2


def test_the_details_of_tokens_are_flat() -> None:
    found: dict[str, Any] = {}
    page = (DOCS / "authors" / "backends.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"<!-- test: kept_details -->\n```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    exec(text, found)
    details = found["kept_details"]([np.array([7, 3]), np.array([5]), np.array([2, 9, 4])])
    assert details.kept_ids.tolist() == [7, 3, 5, 2, 9, 4]
    assert details.kept_offsets.tolist() == [0, 2, 3, 6]
