"""A stranger's tracker with options, set in a file and by flags; what is wrong with them is refused before anything starts."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rlcore.api import Tracker
from rlcore.testing import PluginFolder, RunTester, TrackerSuite
from tests.stranger_site import link_stranger, stranger_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stranger_site(tmp_path_factory)


class TestLineTracker(TrackerSuite):
    @pytest.fixture(autouse=True)
    def _installed(self, tmp_path_factory: pytest.TempPathFactory, site: Path) -> Iterator[None]:
        with PluginFolder(tmp_path_factory.mktemp("plugins")) as plugins:
            link_stranger(site, plugins)
            registry = plugins.discover()
            model = registry.options_model("tracker", "acme_lines")
            assert model is not None
            self._made = lambda **options: registry.load("tracker", "acme_lines")(model(**options))
            yield

    def make(self, folder: Path) -> Tracker:
        made: Tracker = self._made(path=str(folder / "lines"), prefix="> ")
        return made

    def kept(self, folder: Path) -> list[Mapping[str, Any]] | None:
        rows: list[dict[str, Any]] = []
        for line in (folder / "lines").read_text().splitlines():
            _, step, name, value = line.split()
            if not rows or rows[-1]["step"] != int(step) or ("eval" in name) != any("eval" in key for key in rows[-1]):
                rows.append({"step": int(step)})
            rows[-1][name] = value
        return rows


def a_tester(folder: Path, site: Path) -> RunTester:
    tester = RunTester(folder, in_process=True).with_fakes()
    link_stranger(site, tester.plugins)
    return tester


def lines_of(tester: RunTester, *words: str) -> tuple[Path, list[str]]:
    outcome = tester.run("train", *words, "--json").assert_ok()
    folder = tester.folder / outcome.json["run"]
    return folder, (folder / "said.txt").read_text().splitlines()


OPTIONS = {"acme_lines": {"path": "said.txt", "prefix": "# ", "only": ["reward/mean"]}}


def test_options_of_a_file_reach_it_and_its_run_toml_reproduces_them(tmp_path: Path, site: Path) -> None:
    tester = a_tester(tmp_path, site)
    folder, said = lines_of(tester, tester.fake_run(log={"trackers": ["acme_lines", "fake"], "options": OPTIONS}))
    assert said
    assert all(line.startswith("# ") and "reward/" in line for line in said)
    assert tomllib.loads((folder / "run.toml").read_text())["log"]["options"]["acme_lines"] == OPTIONS["acme_lines"]
    assert lines_of(tester, str(folder / "run.toml"))[1] == said


def test_flags_set_them_over_the_file(tmp_path: Path, site: Path) -> None:
    tester = a_tester(tmp_path, site)
    config = tester.fake_run(log={"trackers": ["acme_lines"], "options": OPTIONS})
    _, said = lines_of(tester, config, "--prefix", "flag ", "--log.options.acme_lines.only", "loss/", "reward/")
    assert {line.split()[0] for line in said} == {"flag"}
    _, said = lines_of(tester, tester.fake_run(), "--trackers", "acme_lines", "--log.options.acme-lines.path", "said.txt")
    assert any(line.startswith("1 ") for line in said)


def test_wrong_options_are_refused(tmp_path: Path, site: Path) -> None:
    tester = a_tester(tmp_path, site)

    def refused(options: dict[str, Any], *words: str, flags: tuple[str, ...] = (), trackers: tuple[str, ...] = ("acme_lines",)) -> None:
        config = tester.fake_run(log={"trackers": list(trackers), "options": options})
        tester.run("train", config, *flags).assert_refused(*words)

    refused({"acme_lines": {"pth": "x"}}, "run.toml, line", "log.options.acme_lines.pth", "did you mean 'path'")
    refused({"acme_lines": {"path": 3}}, "log.options.acme_lines.path = 3", "acme_lines of acme-rlcore", "must be a text")
    refused(
        {"acme_line": {"path": "x"}}, "[log.options.acme_line] is for a tracker that the run does not have", "did you mean 'acme_lines'"
    )
    refused({"acme_lines": {"path": "x"}}, "it has no tracker; type --trackers acme_lines", trackers=())
    refused({"acme_lines": 3}, "log.options", "table")
    refused({"fake": {"after": 1}}, "--after x", flags=("--after", "x"), trackers=("fake",))


def test_a_table_of_a_tracker_that_flags_replace_is_dropped_with_a_note(tmp_path: Path, site: Path) -> None:
    tester = a_tester(tmp_path, site)
    config = tester.fake_run(log={"trackers": ["acme_lines"], "options": OPTIONS})
    outcome = tester.run("train", config, "--trackers", "fake", "--dry-run").assert_ok()
    assert "options of [log.options.acme_lines] that do not apply" in outcome.stdout


def test_show_prints_what_to_paste(tmp_path: Path, site: Path) -> None:
    shown = json.loads(a_tester(tmp_path, site).run("show", "tracker", "acme_lines", "--json").assert_ok().stdout)
    assert tomllib.loads(shown["toml"])["log"] == {
        "trackers": ["acme_lines"],
        "options": {"acme_lines": {"path": "lines.txt", "prefix": "", "only": []}},
    }
    assert [option["path"] for option in shown["options"]] == [f"log.options.acme_lines.{key}" for key in ("path", "prefix", "only")]
