"""docs/backends.md is run: its engine, exactly as printed, keeps the rules of inference backends and trains the quickstart's model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from rlcore.testing.run_tester import QUIET

PAGE = (Path(__file__).parents[2] / "docs" / "backends.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- test: rlcore-plugin-plain/(\S+) -->\n```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
PYTEST = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))"


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    """A project that finds the package of the page."""
    tester = RunTester(tmp_path)
    package = {path.removeprefix("rlcore_plugin_plain/"): text for path, text in FILES.items() if path.startswith("rlcore_plugin_plain/")}
    tester.plugins.install("plain", package.pop("__init__.py"), files=package)
    return tester


def test_the_page_has_the_four_files() -> None:
    module = [f"rlcore_plugin_plain/{name}.py" for name in ("__init__", "plain_backend")]
    assert sorted(FILES) == ["pyproject.toml", *module, "tests/test_plain.py"]


def test_the_engine_is_found_without_being_imported(tester: RunTester) -> None:
    said = tester.run("show", "inference", "plain").assert_ok().stdout
    assert "a forward pass over the whole sequence for each token" in said


@pytest.mark.full
def test_the_engine_keeps_the_rules(tester: RunTester) -> None:
    rules = tester.write("test_plain.py", FILES["tests/test_plain.py"])
    environment = {**os.environ, **tester.plugins.environment, **QUIET}
    done = subprocess.run([sys.executable, "-c", PYTEST, str(rules)], cwd=tester.folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 40


@pytest.mark.full
def test_the_engine_trains_the_quickstart(tester: RunTester) -> None:
    flags = ["-b", "plain", "--max-steps", "2", "-tbs", "4", "-ei", "0", "--max-staleness", "0", "--mismatch-correction", "none"]
    outcome = tester.run("quickstart", "demo", *flags, "--json").assert_ok()
    assert outcome.json["steps"] == 2
