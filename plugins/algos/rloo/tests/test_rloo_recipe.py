from __future__ import annotations

from pathlib import Path

import pytest
from rlcore_plugin_rloo import rlcore_register_advantage_estimators, rlcore_register_algorithms

from rlcore.api import PluginKind
from rlcore.testing import Registry, RunTester

(RECIPE,) = rlcore_register_algorithms()
(ESTIMATOR,) = rlcore_register_advantage_estimators()


def test_every_default_has_a_source_and_is_in_the_readme() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for path, (value, source) in RECIPE.defaults.items():
        assert source
        assert str(value) in readme
        assert path.split(".")[-1] in readme


def test_the_spec_says_what_the_class_says() -> None:
    registry = Registry.discover()
    made = registry.load(PluginKind.ESTIMATOR, "RLOO")()
    assert (ESTIMATOR.accepts_kl, ESTIMATOR.needs_greedy) == (made.accepts_kl, made.needs_greedy) == (True, False)
    options = registry.options_model(PluginKind.LOSS, RECIPE.loss)
    assert options is not None
    assert {path.rpartition(".")[2] for path in RECIPE.defaults if ".options." in path} <= set(options.model_fields)


def test_the_numbers_are_those_of_ppo() -> None:
    numbers = {path: value for path, (value, _) in RECIPE.defaults.items() if not isinstance(value, str)}
    assert numbers == {"algorithm.kl_coeff": 0.0, "algorithm.options.clip_eps_low": 0.2, "algorithm.options.clip_eps_high": 0.2}


def test_show_in_any_case(tmp_path: Path) -> None:
    shown = RunTester(tmp_path, in_process=True).run("show", "algo", "RLOO").assert_ok().stdout
    assert "R_i N / (N - 1) - mean(R) N / (N - 1)" in shown


@pytest.mark.parametrize("flags", [[], ["-kl", "0.1"], ["--updates-per-batch", "2"]], ids=["plain", "kl", "two_updates"])
def test_it_trains(tmp_path: Path, flags: list[str]) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    run = tester.fake_run(training={"name": "fake-pipeline"}, algorithm={"name": "RLOO"})
    done = tester.run("train", run, "--json", *flags).assert_ok().json
    assert done["ledger"]["trained"] == 9
