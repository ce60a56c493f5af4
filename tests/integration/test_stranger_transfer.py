"""A stranger's weight transfer: it keeps the rules, is listed, and a run trains through it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.api.weights import WeightTransfer
from rlcore.testing import PluginFolder, RunTester, WeightTransferSuite
from tests.ray_in_one_process import ray_in_one_process
from tests.stranger_site import link_stranger, stranger_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stranger_site(tmp_path_factory)


class TestFileTransfer(WeightTransferSuite):
    @pytest.fixture(autouse=True)
    def _installed(self, tmp_path: Path, site: Path) -> Iterator[None]:
        with PluginFolder(tmp_path / "plugins") as plugins:
            link_stranger(site, plugins)
            registry = plugins.discover()
            options = registry.options_model("transfer", "acme_files")
            assert options is not None
            self._made = lambda: registry.load("transfer", "acme_files")(options.model_validate({"folder": str(tmp_path)}))
            yield
            self.teardown_method()
            self.setup_method()
            assert not list(tmp_path.glob("acme-weights-*")), "files are left"

    def make(self) -> WeightTransfer:
        made: WeightTransfer = self._made()
        return made


def test_a_run_trains_through_it(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    link_stranger(site, tester.plugins)
    config = tester.fake_run(weights={"options": {"folder": str(tmp_path)}}, log={"rollout_interval": 1})
    with ray_in_one_process(monkeypatch):
        words = ("train", config, "--json", "--runtime", "ray", "-i", "2", "--transport", "acme_files", "--poll-seconds", "0.002")
        outcome = tester.run(*words).assert_ok()
    folder = tmp_path / outcome.json["run"]
    weights = tomllib.loads((folder / "run.toml").read_text())["weights"]
    assert weights["transport"] == "acme_files"
    assert weights["options"] == {"folder": str(tmp_path), "poll_seconds": 0.002}
    plugins = {(one["kind"], one["name"]): one for one in json.loads((folder / "manifest.json").read_text())["plugins"]}
    assert plugins["transfer", "acme_files"]["distribution"] == "acme-rlcore"
    assert {row["version"] for row in RunRecord(folder).rollouts(3)} == {2}, (
        "the third update trains on rollouts of other weights than the second's"
    )
    assert not list(tmp_path.glob("acme-weights-*"))


def test_it_is_listed_and_wrong_options_are_refused(tmp_path: Path, site: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    link_stranger(site, tester.plugins)
    shown = tester.run("show", "transfer", "acme_files").assert_ok().stdout
    assert '[weights]\ntransport = "acme_files"\n\n[weights.options]\nfolder = ""\npoll_seconds = 0.01' in shown
    config = tester.fake_run()
    words = ("train", config, "--runtime", "ray", "--transport", "acme_files")
    tester.run(*words, "--poll-seconds", "0").assert_refused("--poll-seconds 0", "above 0")
    tester.run("train", config, "--transport", "acme_files").assert_refused("is for several processes", "--runtime ray")
    tester.run(*words[:-1], "acme_fils").assert_refused("there is no weight transfer 'acme_fils'", "acme_files")
