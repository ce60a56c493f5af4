"""A stranger's aggregation, KL estimator and correction: they keep the kit's rules, are found by name, and a run is trained with them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rlcore.api import Aggregation, Correction, KlEstimator
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import AggregationSuite, CorrectionSuite, KlSuite, PluginFolder, RunTester
from tests.stranger_site import link_stranger, stranger_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stranger_site(tmp_path_factory)


@pytest.fixture
def offered(tmp_path: Path, site: Path) -> Iterator[Registry]:
    with PluginFolder(tmp_path / "plugins") as plugins:
        link_stranger(site, plugins)
        yield plugins.discover()


class TestRootOfLength(AggregationSuite):
    @pytest.fixture(autouse=True)
    def _installed(self, offered: Registry) -> None:
        self._made = offered.make("aggregation", "acme_root")

    def make(self) -> Aggregation:
        made: Aggregation = self._made
        return made


class TestBoundedKl(KlSuite):
    gradient = ""

    @pytest.fixture(autouse=True)
    def _installed(self, offered: Registry) -> None:
        options = offered.options_model("kl", "acme_bounded")
        assert options is not None
        self._made = offered.make("kl", "acme_bounded", options=options())

    def make(self) -> KlEstimator:
        made: KlEstimator = self._made
        return made


class TestGate(CorrectionSuite):
    @pytest.fixture(autouse=True)
    def _installed(self, offered: Registry) -> None:
        self._target = offered.load("correction", "acme_gate")

    def make(self, bounds: tuple[float, float]) -> Correction:
        made: Correction = self._target(bounds)
        return made


def a_tester(folder: Path, site: Path) -> RunTester:
    tester = RunTester(folder, in_process=True).with_fakes()
    link_stranger(site, tester.plugins)
    return tester


def a_run(tester: RunTester, **algorithm: Any) -> str:
    chosen = {"name": "fake", "loss": "clipped", "kl_coeff": 0.1, "updates_per_batch": 3, **algorithm}
    return tester.fake_run(
        training={"name": "fake-pipeline", "learning_rate": 0.4},
        algorithm=chosen,
        sampling={"max_new_tokens": 4, "num_generations": 4},
    )


NAMES = {"loss_variation": "acme_root", "kl_kind": "acme_bounded", "mismatch_correction": "acme_gate"}
FLAGS = ("--loss-variation", "acme_root", "--kl-kind", "acme_bounded", "--mismatch-correction", "acme_gate")


def trained(tester: RunTester, *words: str) -> tuple[Path, list[Mapping[str, float]]]:
    done = tester.run("train", *words, "--json").assert_ok()
    folder = tester.folder / done.json["run"]
    return folder, [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_is_trained_with_all_three_by_flag(tmp_path: Path, site: Path) -> None:
    tester = a_tester(tmp_path, site)
    _, plain = trained(tester, a_run(tester))
    folder, steps = trained(tester, a_run(tester), *FLAGS, "--slope", "0.5", "--mismatch-range", "0.99", "1.01")
    assert all(step["mismatch_weight"] == pytest.approx(1.0) and step["mismatch_cut"] == 0.0 for step in steps)  # fresh data
    assert all("mismatch_weight" not in step for step in plain)
    written = tomllib.loads((folder / "run.toml").read_text())["algorithm"]
    assert {key: written[key] for key in NAMES} == NAMES
    assert written["kl_kind_options"] == {"slope": 0.5}
    assert written["mismatch_range"] == [0.99, 1.01]
    attested = {(row["kind"], row["name"]): row for row in json.loads((folder / "manifest.json").read_text())["plugins"]}
    for kind, name in (("aggregation", "acme_root"), ("kl", "acme_bounded"), ("correction", "acme_gate")):
        assert attested[kind, name]["distribution"] == "acme-rlcore"
    _, again = trained(tester, str(folder / "run.toml"))
    assert [step["loss"] for step in again] == [step["loss"] for step in steps]


@pytest.mark.parametrize("key", ["loss_variation", "kl_kind"])
def test_each_of_them_changes_what_is_trained(tmp_path: Path, site: Path, key: str) -> None:
    tester = a_tester(tmp_path, site)
    _, plain = trained(tester, a_run(tester))
    _, steps = trained(tester, a_run(tester), f"--{key.replace('_', '-')}", NAMES[key])
    assert [step["loss"] for step in plain] != [step["loss"] for step in steps]


def test_their_bounds_and_options_are_checked_as_those_of_the_core(tmp_path: Path, site: Path) -> None:
    tester = a_tester(tmp_path, site)
    refused = tester.run("train", a_run(tester), *FLAGS, "--mismatch-range", "none")
    refused.assert_refused("masks values outside a range; type --mismatch-range 0.5 1.5")
    tester.run("train", a_run(tester), *FLAGS, "--slope", "-1").assert_refused("--slope -1", "above 0")
    toml = a_run(tester, kl_kind="acme_bounded", kl_kind_options={"slop": 1.0})
    tester.run("train", toml).assert_refused("run.toml, line", "algorithm.kl_kind_options.slop", "did you mean 'slope'")
    tester.run("train", a_run(tester), "--kl-kind", "acme_bound").assert_refused("there is no KL estimator 'acme_bound', did you mean")


def test_they_are_listed_and_shown(tmp_path: Path, site: Path) -> None:
    tester = a_tester(tmp_path, site)
    listed = tester.run("plugins").assert_ok().stdout
    assert all(name in listed for name in (*NAMES.values(), "token_level", "k3", "sequence_masked"))
    shown = json.loads(tester.run("show", "kl", "acme_bounded", "--json").assert_ok().stdout)
    assert tomllib.loads(shown["toml"])["algorithm"] == {"kl_kind": "acme_bounded", "kl_kind_options": {"slope": 2.0}}
    shown = json.loads(tester.run("show", "correction", "acme_gate", "--json").assert_ok().stdout)
    assert (shown["properties"]["usual_range"], shown["properties"]["masks"]) == ([0.5, 1.5], True)
    tester.run("show", "aggregation", "acme_root").assert_ok()


def test_a_class_of_a_file_is_one_too(tmp_path: Path, site: Path) -> None:
    tester = a_tester(tmp_path, site)
    tester.write(
        "mine.py",
        'from rlcore.learning.kl import K2\n\n\nclass Doubled(K2):\n    """Twice k2."""\n\n'
        "    def estimate(self, logprobs, reference):\n        return 2 * super().estimate(logprobs, reference)\n",
    )
    _, steps = trained(tester, a_run(tester), "--kl-kind", "./mine.py:Doubled")
    _, plain = trained(tester, a_run(tester), "--kl-kind", "k2")
    assert [step["loss"] for step in steps] != [step["loss"] for step in plain]
