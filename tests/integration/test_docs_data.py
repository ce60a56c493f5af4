"""docs/authors/data.md and trackers.md are run: data sources and a tracker, exactly as printed, in a package that a run finds."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rlcore.api.data import RowFormat
from rlcore.testing import RowFormatSuite, RowGeneratorSuite, RunTester

AUTHORS = Path(__file__).parents[2] / "docs" / "authors"
PAGE = (AUTHORS / "data.md").read_text(encoding="utf-8")
TRACKERS, WEIGHTS = ((AUTHORS / name).read_text(encoding="utf-8") for name in ("trackers.md", "weights.md"))
SOURCE = re.search(r"```python\n(?P<text>from rlcore.api import DataSourceSpec.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
TRACKER, TABLE = re.findall(r"<!-- test: alarm -->\n```(?:python|toml)\n(.*?)^```$", TRACKERS, re.DOTALL | re.MULTILINE)

GENERATOR, SUITE, OFFER, RUN = re.findall(r"<!-- test: endless -->\n```(?:python|toml)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


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


def test_the_row_format_keeps_the_rules() -> None:
    found: dict[str, Any] = {"__name__": "acme_rlcore"}
    (text,) = re.findall(r"<!-- test: sums -->\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    exec(text, found)

    class Rules(RowFormatSuite):
        foreign = ({"question": "1 + 2", "answer": "3"},)
        broken = ({"sum": 3, "result": 3},)

        def make(self) -> RowFormat:
            made: RowFormat = found["Sums"]()
            return made

        def rows(self) -> list[dict[str, Any]]:
            return [{"sum": "1 + 2", "result": 3}, {"sum": "2 + 2", "result": "4"}]

    for name in dir(Rules):
        if name.startswith("test_"):
            getattr(Rules(), name)()


def rules_of_the_page() -> list[str]:
    return [name for name in dir(RowGeneratorSuite) if name.startswith("test_")]


@pytest.mark.parametrize("rule", rules_of_the_page())
def test_the_generator_keeps_the_rules(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sums_without_end.py").write_text(GENERATOR, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sums_without_end", raising=False)
    found: dict[str, Any] = {"__name__": "suite_of_the_page"}
    exec(SUITE, found)
    getattr(found["TestSumsWithoutEnd"](), rule)()


def test_a_run_takes_the_generator_from_its_file_and_from_a_package(tmp_path: Path) -> None:
    tester = a_tester_with(tmp_path, "rlcore_api = '2.0'\n" + OFFER.replace("my_plugin.sums_without_end", "sums_without_end"))
    (tester.plugins.root / "sums_without_end.py").write_text(GENERATOR, encoding="utf-8")
    (tmp_path / "sums_without_end.py").write_text(GENERATOR, encoding="utf-8")
    config = tester.fake_run(**tomllib.loads(RUN))
    for words in ((), ("-d", "sums:1")):
        told = tester.run("train", config, "--dry-run", *words).assert_ok().stdout
        assert "sums:1 has no end" in told
    tester.run("train", config, "--dry-run", "-d", "sums:one").assert_refused("sums:one: name a seed, for example sums:1")


@pytest.mark.parametrize("name", re.findall(r"`(tests/[\w/.*]+)`", PAGE + TRACKERS + WEIGHTS))
def test_the_files_that_the_page_names_are_there(name: str) -> None:
    assert list(Path(__file__).parents[2].glob(name.rstrip("/")))
