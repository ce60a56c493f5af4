"""The registry by itself: names, clashes, hints, attestation. Broken plugins: tests/contracts/test_broken_plugins.py."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import BaseModel

from rlcore.api import LossSpec, PluginError, PluginKind, Reward, RewardInput, RewardSpec, Score
from rlcore.registry.discovery import api_problem
from rlcore.registry.install import install_line
from rlcore.registry.plugin_registry import NotInstalledError, Registry
from rlcore.testing.plugin_folder import PluginFolder

ONE_REWARD = """
from rlcore.api import RewardSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_rewards():
    return [
        RewardSpec(name="{name}", target="rlcore_plugin_{plugin}.judge:Judge", summary="A reward", aliases=({aliases})),
        RewardSpec(name="only_{plugin}", target="rlcore_plugin_{plugin}.judge:Judge", config="{config}", summary="A reward"),
    ]
"""
JUDGE = """
from pydantic import BaseModel, ConfigDict
from rlcore.api import Reward, Score

class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    scale: float = 10.0

class Loose(BaseModel):
    scale: float = 10.0

class Thawed(BaseModel):
    model_config = ConfigDict(extra="forbid")

class Judge(Reward):
    def score(self, item):
        return Score(value=1.0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[PluginFolder]:
    with PluginFolder(tmp_path / "site") as folder:
        yield folder


def _install(folder: PluginFolder, plugin: str, name: str, aliases: str = "", config: str = "") -> str:
    source = ONE_REWARD.format(name=name, plugin=plugin, aliases=aliases, config=config)
    return folder.install(plugin, source, files={"judge.py": JUDGE})


def test_built_ins_are_registered_through_the_same_hooks(folder: PluginFolder) -> None:
    registry = folder.discover()
    assert [row.distribution for row in registry.rows] == ["rlcore"]
    assert [row.problems for row in registry.rows] == [()]
    assert registry.names("estimator") == ["group_mean", "group_norm"]
    assert registry.names(PluginKind.LOSS) == ["clipped"]
    assert registry.owner("loss", "clipped") == "rlcore"


def test_names_and_aliases_are_found_in_any_case(folder: PluginFolder) -> None:
    _install(folder, "acme", "exact", aliases='"same",')
    registry = folder.discover()
    assert registry.spec("reward", "EXACT") is registry.spec("reward", "Same")
    assert registry.names("reward") == ["exact", "only_acme"]
    assert registry.has("reward", "SAME")
    assert not registry.has("loss", "exact")


def test_discovery_imports_no_target(folder: PluginFolder) -> None:
    import sys

    _install(folder, "acme", "exact", config="rlcore_plugin_acme.judge:Options")
    registry = folder.discover()
    registry.spec("reward", "exact")
    registry.attest("reward", "exact")
    assert "rlcore_plugin_acme.judge" not in sys.modules
    judge = registry.load("reward", "exact")()
    assert judge.score(RewardInput(messages=(), columns={}, text="")).value == 1.0


def test_plugins_are_listed_by_entry_point_name(folder: PluginFolder) -> None:
    for plugin in ("zeta", "alpha", "mid"):
        folder.install(plugin)
    assert [row.entry_point for row in folder.discover().rows] == ["builtin", "alpha", "mid", "zeta"]


def test_two_distributions_with_one_name_clash_only_where_it_is_used(folder: PluginFolder) -> None:
    _install(folder, "acme", "exact")
    _install(folder, "other", "mine", aliases='"exact",')
    registry = folder.discover()
    with pytest.raises(PluginError, match=r"reward 'exact' is registered by rlcore-plugin-acme and rlcore-plugin-other"):
        registry.spec("reward", "Exact")
    assert registry.has("reward", "exact")
    assert registry.owner("reward", "mine") == "rlcore-plugin-other"
    assert registry.owner("reward", "only_acme") == "rlcore-plugin-acme"
    assert any("'exact'" in conflict for conflict in registry.name_conflicts())


def test_one_plugin_that_registers_a_name_twice_clashes_with_itself(folder: PluginFolder) -> None:
    _install(folder, "acme", "only_acme")
    with pytest.raises(PluginError, match="registered 2 times by rlcore-plugin-acme"):
        folder.discover().spec("reward", "only_acme")


def test_an_unknown_name_gets_the_closest_match_and_what_is_installed(folder: PluginFolder) -> None:
    with pytest.raises(PluginError) as caught:
        folder.discover().spec("estimator", "grup_norm")
    assert str(caught.value) == "there is no advantage estimator 'grup_norm', did you mean 'group_norm' (installed: group_mean, group_norm)"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("kind", "name", "distribution"),
    [
        ("algo", "DAPO", "rlcore-plugin-dapo"),
        ("algo", "REINFORCE_PPB", "rlcore-plugin-reinforce"),
        ("reward", "code", "rlcore-plugin-code"),
        ("tracker", "wandb", "rlcore-plugin-trackers"),
    ],
)
def test_a_known_name_that_is_not_installed_gets_its_pip_line(folder: PluginFolder, kind: str, name: str, distribution: str) -> None:
    with pytest.raises(NotInstalledError) as caught:
        folder.discover().spec(kind, name)
    assert caught.value.pip == install_line(distribution)
    assert caught.value.pip in str(caught.value)


def test_a_known_name_whose_distribution_lacks_it_asks_for_a_newer_one(folder: PluginFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rlcore_plugin_dapo", raising=False)  # the real one, of another test
    folder.install("dapo")
    line = re.escape(install_line("rlcore-plugin-dapo", upgrade=True))
    with pytest.raises(NotInstalledError, match=rf"not in rlcore-plugin-dapo 1\.0 yet: {line}"):
        folder.discover().spec("algo", "dapo")


def test_a_known_name_whose_distribution_is_broken_says_why(folder: PluginFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rlcore_plugin_trackers", raising=False)  # the real one
    folder.install("trackers", "import no_such_thing")
    with pytest.raises(PluginError, match=r"installed but broken: .*no_such_thing"):
        folder.discover().spec("tracker", "wandb")


def test_disable_switches_a_plugin_off_by_entry_point_or_distribution(folder: PluginFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(folder, "acme", "exact")
    _install(folder, "other", "mine")
    monkeypatch.setenv("RLCORE_DISABLE", "acme, RLCORE_plugin_other")
    registry = folder.discover()
    assert {row.entry_point: row.disabled for row in registry.rows[1:]} == {"acme": "RLCORE_DISABLE", "other": "RLCORE_DISABLE"}
    assert registry.names("reward") == []
    with pytest.raises(PluginError, match="switched off: rlcore-plugin-acme"):
        registry.spec("reward", "exact")


def test_an_allow_list_keeps_everything_else_out(folder: PluginFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(folder, "acme", "exact")
    folder.install("dapo", "raise SystemExit('imported')")
    monkeypatch.setenv("RLCORE_PLUGINS", "acme")
    registry = folder.discover()
    assert registry.names("reward") == ["exact", "only_acme"]
    assert registry.names("loss") == ["clipped"], "built-ins are not plugins to be switched off"
    assert not any(row.problems for row in registry.rows)
    with pytest.raises(PluginError, match="which RLCORE_PLUGINS excludes"):
        registry.spec("algo", "dapo")


def test_a_switch_that_names_nothing_is_noted(folder: PluginFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.install("acme")
    monkeypatch.setenv("RLCORE_DISABLE", "acne")
    assert folder.discover().notes == ("RLCORE_DISABLE names 'acne', which is not the name of an installed plugin, did you mean 'acme'",)


def test_options_models_are_loaded_on_demand_and_must_be_strict(folder: PluginFolder) -> None:
    _install(folder, "acme", "exact", config="rlcore_plugin_acme.judge:Options")
    _install(folder, "loose", "other", config="rlcore_plugin_loose.judge:Loose")
    _install(folder, "thawed", "third", config="rlcore_plugin_thawed.judge:Thawed")
    registry = folder.discover()
    model = registry.options_model("reward", "only_acme")
    assert model is not None
    assert issubclass(model, BaseModel)
    assert registry.options_model("reward", "exact") is None
    with pytest.raises(PluginError, match='must set model_config = ConfigDict\\(extra="forbid", frozen=True\\)'):
        registry.options_model("reward", "only_loose")
    with pytest.raises(PluginError, match="must set model_config"):
        registry.options_model("reward", "only_thawed")


def test_an_attestation_changes_with_version_and_spec(folder: PluginFolder) -> None:
    _install(folder, "acme", "exact")
    registry = folder.discover()
    attested = registry.attest("reward", "exact")
    assert (attested.distribution, attested.version, attested.source_sha256) == ("rlcore-plugin-acme", "1.0", "")
    assert folder.discover().attest("reward", "exact") == attested
    assert registry.attest("reward", "only_acme").spec_sha256 != attested.spec_sha256
    registry.check_attestations([attested])
    with pytest.raises(PluginError, match=r"reward 'exact' differs between processes: version is '0\.9' in the driver and '1\.0' here"):
        registry.check_attestations([replace(attested, version="0.9")])


def test_a_spec_added_by_hand_is_found_and_cannot_take_a_name(folder: PluginFolder) -> None:
    registry = folder.discover()
    mine = LossSpec(name="mine", target="rlcore.learning.losses:ClippedSurrogate", summary="Mine")
    assert registry.add("loss", mine) == "mine"
    assert registry.spec("loss", "MINE") is mine
    with pytest.raises(PluginError, match="the name 'clipped' is taken by the loss of rlcore"):
        registry.add("loss", mine, name="clipped")
    with pytest.raises(PluginError):
        registry.add("reward", mine)


def test_a_recipe_has_no_code(folder: PluginFolder) -> None:
    from rlcore.api import AlgorithmSpec

    registry = folder.discover()
    registry.add("algo", AlgorithmSpec(name="mine", summary="Mine", estimator="group_mean", loss="clipped"))
    with pytest.raises(PluginError, match="is a recipe and has no code"):
        registry.load("algo", "mine")


@pytest.mark.parametrize(
    ("declared", "host", "word"),
    [
        ("1.0", "1.0", ""),
        ("1.2", "1.3", ""),
        ("1.4", "1.3", install_line("rlcore", upgrade=True)),
        ("2.0", "1.3", install_line("rlcore", upgrade=True)),
        ("0.9", "1.3", "newer release of the plugin"),
        (None, "1.3", 'rlcore_api = "1.3"'),
        (1.0, "1.3", "must read"),
        ("1", "1.3", "must read"),
        ("1.0.0", "1.3", "must read"),
    ],
)
def test_api_rule_is_same_major_and_minor_at_most_the_hosts(declared: object, host: str, word: str) -> None:
    problem = api_problem(declared, host)
    assert bool(problem) == bool(word)
    assert word in problem


def test_the_whole_environment_is_discovered_from_the_import_path(folder: PluginFolder) -> None:
    _install(folder, "acme", "exact")
    assert Registry.discover().owner("reward", "exact") == "rlcore-plugin-acme"


def test_a_class_added_from_python_keeps_its_declarations(folder: PluginFolder) -> None:
    class Shortness(Reward):
        """Short is good."""

        requires = ("limit",)

        def score(self, item: RewardInput) -> Score:
            return Score(value=float(len(item.text) < item.columns["limit"]))

    registry = folder.discover()
    assert registry.add("reward", Shortness) == "shortness"
    spec = registry.spec("reward", "Shortness")
    assert isinstance(spec, RewardSpec)
    assert (spec.summary, spec.requires, spec.gives_accuracy) == ("Short is good.", ("limit",), True)
    assert registry.load("reward", "shortness") is Shortness
    assert registry.names("reward") == ["shortness"]
