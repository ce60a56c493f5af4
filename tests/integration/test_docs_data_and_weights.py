"""docs/data_and_weights.md is run: its data source and its tracker, exactly as printed, in a package that a run finds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from rlcore.testing import RunTester

PAGE = (Path(__file__).parents[2] / "docs" / "data_and_weights.md").read_text(encoding="utf-8")
SOURCE = re.search(r"```python\n(?P<text>from rlcore.api import DataSourceSpec.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
TRACKER, TABLE = re.findall(r"<!-- test: alarm -->\n```(?:python|toml)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def a_tester_with(folder: Path, text: str) -> RunTester:
    tester = RunTester(folder, in_process=True).with_fakes()
    tester.plugins.install("acme", distribution="acme-rlcore", target="acme_rlcore")
    (tester.plugins.root / "acme_rlcore.py").write_text(text, encoding="utf-8")
    return tester


def test_the_tracker_writes_the_steps_that_are_too_low(tmp_path: Path) -> None:
    tester = a_tester_with(tmp_path, TRACKER)
    config = tester.fake_run(**tomllib.loads(TABLE))
    outcome = tester.run("train", config, "--below", "1.5", "--json").assert_ok()
    said = (tmp_path / outcome.json["run"] / "alarms.txt").read_text(encoding="utf-8").splitlines()
    assert len(said) == 3
    assert said[0].startswith("step 1: reward/mean is ")
    tester.run("train", tester.fake_run(log={"trackers": ["alarm"]})).assert_refused(
        "log.options.alarm has no below", "[log.options.alarm]"
    )


def test_the_data_source_is_read_by_its_prefix(tmp_path: Path) -> None:
    assert SOURCE is not None
    tester = a_tester_with(tmp_path, SOURCE["text"])
    config = tester.fake_run(data={"dataset": "countdown:"}, training={"train_batch_size": 1})
    planned = tester.run("train", config, "--dry-run", "--json").assert_ok().json
    assert planned["config"]["data"]["dataset"] == [{"path": "countdown:", "repeat": 1.0, "source": "countdown", "options": {}}]


@pytest.mark.parametrize("name", re.findall(r"`(tests/[\w/.*]+)`", PAGE))
def test_the_files_that_the_page_names_are_there(name: str) -> None:
    assert list(Path(__file__).parents[2].glob(name.rstrip("/")))
