from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_reinforce import (
    rlcore_register_advantage_estimators,
    rlcore_register_algorithms,
    rlcore_register_losses,
)

from rlcore.api import AdvantageSpec, AlgorithmSpec, PluginKind
from rlcore.testing import Registry, RunTester

RECIPES = {spec.name: spec for spec in rlcore_register_algorithms()}
ESTIMATORS = {spec.name: spec for spec in rlcore_register_advantage_estimators()}
LOSSES = {spec.name: spec for spec in rlcore_register_losses()}


@pytest.mark.parametrize("spec", RECIPES.values(), ids=RECIPES)
def test_every_default_has_a_source_and_is_in_the_readme(spec: AlgorithmSpec) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for path, (value, source) in spec.defaults.items():
        assert source
        assert str(value) in readme
        assert path.split(".")[-1] in readme


@pytest.mark.parametrize("spec", ESTIMATORS.values(), ids=ESTIMATORS)
def test_the_spec_says_what_the_class_says(spec: AdvantageSpec) -> None:
    registry = Registry.discover()
    options = registry.options_model(PluginKind.ESTIMATOR, spec.name)
    made = registry.load(PluginKind.ESTIMATOR, spec.name)(*([options()] if options else []))
    assert (spec.accepts_kl, spec.needs_greedy) == (made.accepts_kl, made.needs_greedy)


def test_recipes_name_parts_that_are_there_and_options_that_these_have() -> None:
    registry = Registry.discover()
    for spec in RECIPES.values():
        parts = ((PluginKind.ESTIMATOR, spec.estimator), (PluginKind.LOSS, spec.loss))
        models = [registry.options_model(kind, name) for kind, name in parts]
        known = {field for model in models if model is not None for field in model.model_fields}
        assert {path.rpartition(".")[2] for path in spec.defaults if ".options." in path} <= known


@pytest.mark.parametrize("typed", ["REINFORCE_PPB", "REINFORCE++-Baseline", "Reinforce++", "ReMax", "OPO", "GPG"])
def test_show_in_any_case(tmp_path: Path, typed: str) -> None:
    shown = RunTester(tmp_path, in_process=True).run("show", "algo", typed).assert_ok().stdout
    assert "Differences from GRPO" in shown
    assert "Where others differ" in shown


def trained(tmp_path: Path, name: str, *flags: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    run = tester.fake_run(training={"name": "fake-pipeline"}, algorithm={"name": name})
    done = tester.run("train", run, "--json", *flags).assert_ok().json
    lines = (tmp_path / done["run"] / "metrics.jsonl").read_text().splitlines()
    return done, [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", RECIPES)
def test_it_trains(tmp_path: Path, name: str) -> None:
    done, metrics = trained(tmp_path, name)
    assert done["ledger"]["trained"] == 9
    assert any(record.get("grad_norm", 0.0) > 0.0 for record in metrics)


@pytest.mark.parametrize("name", ["reinforce++", "reinforce_ppb", "remax"])
def test_kl_goes_through_the_reward_to_the_weights_and_not_into_the_loss(tmp_path: Path, name: str) -> None:
    """The first update sees no KL yet; later ones do, and differ from a run without it. The loss carries no penalty of its own."""
    _, without = trained(tmp_path / "without", name, "-kl", "0")
    _, with_kl = trained(tmp_path / "with", name, "-kl", "5")
    last = [record for record in with_kl if "kl_reference" in record][-1]
    assert last["kl_reference"] > 0.0
    assert last["loss"] == last["policy_loss"]
    assert last["advantage_abs_mean"] != next(r for r in reversed(without) if "loss" in r)["advantage_abs_mean"]


def test_remax_asks_for_one_greedy_completion_a_prompt_and_trains_the_others(tmp_path: Path) -> None:
    _, metrics = trained(tmp_path, "remax")
    steps = [record for record in metrics if "rollouts_in_loss" in record]
    assert [record["rollouts_in_loss"] for record in steps] == [24.0] * 3
    (logged,) = tmp_path.rglob("rollouts/step-1.jsonl.gz")
    with gzip.open(logged, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert [row["kind"] for row in rows].count("greedy") >= 3
    assert all((row["advantage"] is None) == (row["kind"] == "greedy") for row in rows)


@pytest.mark.parametrize("name", ["remax", "opo", "gpg"])
def test_a_batch_of_older_data_is_a_choice_that_the_user_can_make(tmp_path: Path, name: str) -> None:
    """The ratio's loss with a recipe of this family: its options apply."""
    done, _ = trained(tmp_path, name, "--loss", "clipped", "--max-staleness", "1", "--updates-per-batch", "2")
    assert done["steps"] == 3
