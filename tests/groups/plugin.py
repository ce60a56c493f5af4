"""The part inside pytest: ``--group NAME`` runs the tests of one group, ``--group-report FILE`` says what came of them.

Every run notes which tests marked `full` or `nightly` no group has; tests/repo/test_groups.py fails for them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.groups.table import Table

ROOT = Path(__file__).resolve().parents[2]
HOMELESS = pytest.StashKey[list[str]]()
"""A sentence for each collected test that should belong to a group and does not."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Two options, for tests.groups.runner."""
    parser.addoption("--group", metavar="NAME", help="run the tests of this group of tests/groups/table.toml only")
    parser.addoption("--group-report", metavar="FILE", type=Path, help="write what came of the tests, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Watch the tests, if somebody asks for a report."""
    if config.getoption("group_report"):
        config.pluginmanager.register(Watch(config.getoption("group_report")), "group-report")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop the tests of other groups."""
    table, wanted = Table.load(), config.getoption("group")
    config.stash[HOMELESS] = [said for item in items if (said := homeless(table, item.nodeid, _marks(item)))]
    if not wanted:
        return
    if config.stash[HOMELESS]:
        raise pytest.UsageError(config.stash[HOMELESS][0])
    chosen = table.named(wanted)
    dropped = [item for item in items if table.group_of(item.nodeid, _marks(item)) is not chosen]
    items[:] = [item for item in items if table.group_of(item.nodeid, _marks(item)) is chosen]
    config.hook.pytest_deselected(items=dropped)
    crowded = [item.nodeid for item in items if "serial" in _marks(item) and not chosen.alone]
    if crowded:
        raise pytest.UsageError(f"{crowded[0]} is marked serial, and group {wanted} runs beside others; give it to a group that is alone")


def homeless(table: Table, test: str, marks: set[str]) -> str:
    """One sentence if no group has a test, or if the file would not be given to pytest for its group; else ""."""
    path = test.partition("::")[0]
    if not (kind := table.kind_of(path, marks)) or not path.startswith(("tests/", "plugins/")):
        return ""
    group = table.group_of(test, marks)
    if group is None:
        return f"{test} is marked {kind}, and no group of tests/groups/table.toml has it; add {path} to the paths of one"
    beside = f"{path.rpartition('/')[0]}/conftest.py"
    there = [name for name in (path, beside) if (ROOT / name).is_file()]
    if not there or table.files(group, there, lambda name: (ROOT / name).read_text(encoding="utf-8")):
        return ""
    return (
        f"{test} is {kind}, and neither its file nor the conftest beside it says pytest.mark.{kind}, by which group {group.name} finds it"
    )


def _marks(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


class Watch:
    """Counts outcomes, notes why tests were skipped, and which files of the repository this process opened."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._outcomes: dict[str, str] = {}
        self._skipped: dict[str, str] = {}
        self._opened: set[str] = set()
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            self._opened.add(arguments[0])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Keep the worst outcome of a test's three phases."""
        report: pytest.TestReport = yield  # type: ignore[assignment,misc]
        worst = self._outcomes.get(report.nodeid)
        if report.failed or worst is None or (report.skipped and worst == "passed"):
            self._outcomes[report.nodeid] = "failed" if report.failed or worst == "failed" else report.outcome
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped[report.nodeid] = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        return report  # type: ignore[return-value]

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the report."""
        told = {
            "code": int(exitstatus),
            "outcomes": self._outcomes,
            "skipped": self._skipped,
            "opened": sorted({opened for path in self._opened if (opened := _source(path))}),
        }
        self._file.write_text(json.dumps(told), encoding="utf-8")


def _source(path: str) -> str:
    """The file of the repository that was opened, that of a module for its bytecode; "" for others, the environment's and git's own. In an
    engine's environment modules are found through links."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(ROOT):
        return ""
    inner = real.relative_to(ROOT)
    if inner.parent.name == "__pycache__":
        inner = inner.parents[1] / f"{inner.name.split('.')[0]}.py"
    return "" if inner.parts[:1] in ((), (".venv",), (".git",)) or inner.parts[:2] == ("tests", "groups") else str(inner)
