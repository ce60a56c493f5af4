"""Every recipe of the family: documented, resolvable, and it trains. Invariances: the core's contracts, for every recipe."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore_plugin_grpo import rlcore_register_algorithms, rlcore_register_losses

from rlcore.api import PluginKind
from rlcore.testing import Registry, RunTester

RECIPES = {spec.name: spec for spec in rlcore_register_algorithms()}
REGISTRY = Registry.discover()


def test_the_family() -> None:
    assert list(RECIPES) == ["grpo", "dr_grpo", "gspo", "gmpo", "cispo", "sapo", "maxrl", "clip_cov", "kl_cov"]
    assert {spec.name for spec in rlcore_register_losses()} == {"gspo", "gmpo", "cispo", "sapo", "clip_cov", "kl_cov"}


@pytest.mark.parametrize("name", RECIPES)
def test_every_default_has_a_source_and_is_in_the_readme(name: str) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    line = next(line for line in readme.splitlines() if line.startswith(f"| `{name}` "))
    for path, (value, source) in RECIPES[name].defaults.items():
        assert source
        assert str(value) in line
        assert path.split(".")[-1] in readme


@pytest.mark.parametrize("name", RECIPES)
def test_the_notes_hold_the_formula_and_what_differs(name: str) -> None:
    notes = RECIPES[name].notes
    assert notes.startswith("advantage   A_i = ")
    assert "Where others differ:" in notes
    assert all(peer in notes for peer in ("TRL", "verl", "OpenRLHF"))
    assert name == "grpo" or "Against GRPO: " in notes
    assert all(len(line) <= 140 for line in notes.splitlines())


@pytest.mark.parametrize("name", RECIPES)
def test_the_parts_it_names_are_registered_and_take_its_options(name: str) -> None:
    spec = RECIPES[name]
    chosen = {path.rsplit(".", 1)[1]: value for path, (value, _) in spec.defaults.items() if ".options." in path}
    options = REGISTRY.options_model(PluginKind.LOSS, spec.loss)
    assert options is not None
    assert options().model_dump() == {**options().model_dump(), **chosen}, "the loss alone has other defaults than its recipe"
    REGISTRY.load(PluginKind.LOSS, spec.loss)(options(**chosen))
    REGISTRY.load(PluginKind.ESTIMATOR, spec.estimator)()


def test_show_prints_formula_and_sources(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True)
    for name, spec in RECIPES.items():
        shown = tester.run("show", "algo", name.upper()).assert_ok().stdout
        assert spec.notes.splitlines()[0] in shown
        assert all(source in " ".join(shown.split()) for _, source in spec.defaults.values())
    assert "algorithm.options.k" in tester.run("show", "estimator", "pass_at_k").assert_ok().stdout


@pytest.mark.parametrize("name", RECIPES)
def test_it_trains(name: str, tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True)
    tester.with_fakes()
    outcome = tester.run("train", tester.fake_run(algorithm={"name": name}, training={"train_batch_size": 4}))
    assert outcome.exit_code == 0, outcome.stderr


@pytest.mark.parametrize(
    ("flags", "option"), [(("--loss", "gspo"), "sequence_eps_low = 0.0003"), (("--estimator", "pass_at_k", "--k", "2"), "k = 2")]
)
def test_parts_are_replaceable_and_keep_their_own_bounds(tmp_path: Path, flags: tuple[str, ...], option: str) -> None:
    tester = RunTester(tmp_path, in_process=True)
    tester.with_fakes()
    run = tester.fake_run(algorithm={"name": "grpo"})
    shown = tester.run("show", "config", run, *flags).assert_ok().stdout
    assert option in " ".join(shown.split())
    tester.run("train", run, *flags).assert_ok()
