"""A stranger's data source: it keeps the rules, is chosen by prefix or by name, takes options from a file, and a run trains on its rows."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlcore.api.data import RowSource
from rlcore.testing import DataSourceSuite, PluginFolder, RunTester
from tests.stranger_site import link_stranger, stranger_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stranger_site(tmp_path_factory)


class TestMadeRows(DataSourceSuite):
    @pytest.fixture(autouse=True)
    def _installed(self, tmp_path: Path, site: Path) -> Iterator[None]:
        with PluginFolder(tmp_path / "plugins") as plugins:
            link_stranger(site, plugins)
            registry = plugins.discover()
            options = registry.options_model("data", "acme_made")
            assert options is not None
            self._made = lambda: registry.load("data", "acme_made")(options())
            yield

    def make(self) -> RowSource:
        made: RowSource = self._made()
        return made

    def path(self, folder: Path) -> str:
        return "acme:say"

    def missing(self, folder: Path) -> str:
        return "acme:sing"


def a_tester(folder: Path, site: Path) -> RunTester:
    tester = RunTester(folder, in_process=True).with_fakes()
    link_stranger(site, tester.plugins)
    return tester


def trained(tester: RunTester, dataset: Any, **sections: Any) -> tuple[Path, dict[str, Any]]:
    outcome = tester.run("train", tester.fake_run(data={"dataset": dataset}, **sections), "--json").assert_ok()
    folder = tester.folder / outcome.json["run"]
    return folder, tomllib.loads((folder / "run.toml").read_text())["data"]


def test_a_run_trains_on_its_rows_and_its_run_toml_reproduces_it(tmp_path: Path, site: Path) -> None:
    tester = a_tester(tmp_path, site)
    options = {"count": 5, "letters": ["a", "f"]}
    folder, data = trained(
        tester, [{"path": "acme:say", "source": "ACME_made", "options": options}], eval={"eval_dataset": {"say": "acme:say"}}
    )
    assert data["dataset"][0]["options"] == {"count": 5, "seed": 0, "letters": ["a", "f"], "order": "drawn"}
    manifest = json.loads((folder / "manifest.json").read_text())
    plugins = {(one["kind"], one["name"].lower()): one for one in manifest["plugins"]}
    assert plugins["data", "acme_made"]["distribution"] == "acme-rlcore"
    outcome = tester.run("train", str(folder / "run.toml"), "--json").assert_ok()
    again = tester.folder / outcome.json["run"]
    assert json.loads((again / "manifest.json").read_text())["data"] == manifest["data"]


def test_a_prefix_is_enough_and_the_options_are_written_out(tmp_path: Path, site: Path) -> None:
    _, data = trained(a_tester(tmp_path, site), "acme:say")
    assert data["dataset"][0]["path"] == "acme:say"
    assert data["dataset"][0]["options"]["count"] == 6


def test_what_it_cannot_do_is_refused(tmp_path: Path, site: Path) -> None:
    tester = a_tester(tmp_path, site)
    for dataset, words in (
        ([{"path": "acme:say", "options": {"count": 0}}], ("count = 0", "at least 1", "acme-rlcore")),
        ([{"path": "acme:say", "options": {"cuont": 1}}], ("cuont", "is not an option of data source acme_made", "did you mean 'count'")),
        (["train.jsonl", {"path": "acme:say", "options": {"order": "no"}}], ("drawn or sorted",)),
        ([{"path": "acme:say", "source": "acme_mode"}], ("there is no data source 'acme_mode'", "acme_made")),
        ([{"path": "train.jsonl", "options": {"count": 1}}], ("is not an option of data source jsonl", "it has no options")),
    ):
        tester.run("train", tester.fake_run(data={"dataset": dataset})).assert_refused(*words)
    said = tester.run("train", tester.fake_run(data={"dataset": "acme:sing"}))
    assert (said.exit_code, "acme:sing: there is no such task" in said.stderr) == (2, True), said


def test_show_prints_what_to_paste(tmp_path: Path, site: Path) -> None:
    shown = json.loads(a_tester(tmp_path, site).run("show", "data", "acme_made", "--json").assert_ok().stdout)
    pasted = tomllib.loads(shown["toml"].replace("# path =   # the data to read, required", 'path = "acme:say"'))
    (entry,) = pasted["data"]["dataset"]
    assert entry["options"] == {"count": 6, "seed": 0, "letters": ["a", "b", "c"], "order": "drawn"}
    assert entry["source"] == "acme_made"
