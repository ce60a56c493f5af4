"""Every installed recipe learns the quickstart's task with one seed: a nightly guard. `make bench-algorithms` measures how well."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli_w
from rlcore_plugin_quickstart.assets import prepare

import rlcore
from benchmarks.algorithms_plan import UPDATES, Row, Run
from benchmarks.algorithms_table import LEAST_GAIN
from rlcore.registry.plugin_registry import Registry

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("project") / "qs", 0, lambda line: None).folder


@pytest.mark.parametrize("name", Registry.discover().names("algo"))
def test_a_recipe_learns(name: str, quickstart: Path, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(tomli_w.dumps(Run(Row(name, name), 0).settings(quickstart, tmp_path / "runs")), encoding="utf-8")
    summary = rlcore.train(config)
    assert summary.steps == UPDATES  # its prompts may be used up before, when it has learned enough already
    assert summary.accuracy_before is not None
    assert summary.accuracy_after is not None
    assert summary.accuracy_after - summary.accuracy_before >= LEAST_GAIN
