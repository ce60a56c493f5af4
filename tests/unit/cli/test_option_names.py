"""Options of several plugins with one name: each has a long flag and a table of its own, and ``run.toml`` reproduces the run."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rlcore.testing import RunTester

SOURCE = """
import numpy as np
from pydantic import BaseModel, ConfigDict
from rlcore.api import AdvantageSpec, AlgorithmSpec, LossSpec, RewardSpec, hookimpl
rlcore_api = "2.0"

class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

class OfEstimator(Strict):
    scale: float = 1.0
    depth: int = 3

class OfLoss(Strict):
    scale: float = 10.0
    width: int = 4
    no_shuffling: bool = False

class OfReward(Strict):
    scale: float = 100.0
    row_bound: int = 7
    shuffling: bool = False
    seed: int = 1

@hookimpl
def rlcore_register_algorithms():
    own = {"algorithm.options.scale": (5.0, "table 1")}
    return [
        AlgorithmSpec(name="pair", estimator="acme_est", loss="acme_loss", summary=""),
        AlgorithmSpec(name="of_loss", estimator="group_mean", loss="acme_loss", summary="", defaults=own),
        AlgorithmSpec(name="unclear", estimator="acme_est", loss="acme_loss", summary="", defaults=own),
    ]

@hookimpl
def rlcore_register_advantage_estimators():
    return [AdvantageSpec(name="acme_est", target="json:load", config="rlcore_plugin_acme:OfEstimator", summary="")]

@hookimpl
def rlcore_register_losses():
    return [LossSpec(name="acme_loss", target="json:load", config="rlcore_plugin_acme:OfLoss", summary="")]

@hookimpl
def rlcore_register_rewards():
    known = dict(target="json:load", config="rlcore_plugin_acme:OfReward", summary="")
    return [RewardSpec(name=name, **known) for name in ("acme_one", "acme_two")]
"""
TWO_REWARDS = [{"name": "acme_one"}, {"name": "acme_two"}]


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.fake_data()
    tester.plugins.install("acme", SOURCE)
    return tester


def run_of(tester: RunTester, rewards: Sequence[Mapping[str, object]] = ({"name": "acme_one"},), **algorithm: object) -> str:
    tester.fake_run(algorithm=algorithm or {"name": "pair"})
    made = tomllib.loads((tester.folder / "run.toml").read_text(encoding="utf-8"))
    return str(tester.write_toml("run.toml", {**made, "rewards": list(rewards)}))


def config(tester: RunTester, *words: str) -> dict[str, dict[str, dict[str, object]]]:
    found: dict[str, dict[str, dict[str, object]]] = tester.run("train", *words, "--dry-run", "--json").assert_ok().json["config"]
    return found


def test_one_name_in_estimator_loss_and_reward_has_a_long_flag_each(tester: RunTester) -> None:
    run = run_of(tester)
    found = config(tester, run, "--estimator.scale", "2", "--loss.scale", "20", "--rewards.acme_one.scale", "200", "--width", "5")
    assert found["algorithm"]["estimator_options"] == {"scale": 2.0}
    assert found["algorithm"]["loss_options"] == {"scale": 20.0}
    assert found["algorithm"]["options"] == {"depth": 3, "width": 5, "no_shuffling": False}
    assert found["rewards"][0]["options"]["scale"] == 200.0  # type: ignore[index]


def test_run_toml_reproduces_a_run_with_one_name_in_estimator_and_loss(tester: RunTester) -> None:
    flags = ("--estimator.scale", "2", "--loss.scale", "20")
    text = tester.run("show", "config", run_of(tester), *flags, "--toml").assert_ok().stdout
    assert tomllib.loads(text)["algorithm"]["loss_options"] == {"scale": 20.0}
    tester.write("again.toml", text)
    assert config(tester, "again.toml") == config(tester, "run.toml", *flags)
    assert config(tester, "again.toml", "--loss.scale", "21")["algorithm"]["loss_options"] == {"scale": 21.0}


def test_the_defaults_of_one_name_are_kept_apart(tester: RunTester) -> None:
    found = config(tester, run_of(tester))["algorithm"]
    assert (found["estimator_options"], found["loss_options"]) == ({"scale": 1.0}, {"scale": 10.0})


@pytest.mark.parametrize("flag", ["--scale", "--algorithm.options.scale"])
def test_a_name_of_several_plugins_is_refused_with_their_long_flags(flag: str, tester: RunTester) -> None:
    said = tester.run("train", run_of(tester), flag, "3", "--dry-run").assert_refused(
        f"{flag} is an option of ", "loss acme_loss of rlcore-plugin-acme", "advantage estimator acme_est of rlcore-plugin-acme"
    )
    assert "--estimator.scale or --loss.scale" in said.stderr


def test_a_name_of_two_rewards_is_refused_with_both_long_flags(tester: RunTester) -> None:
    run = run_of(tester, TWO_REWARDS, name="grpo")
    for flag in ("--row-bound", "--rewards.options.row_bound"):
        tester.run("train", run, flag, "3").assert_refused("type --rewards.acme_one.row-bound or --rewards.acme_two.row-bound")
    found = config(tester, run, "--rewards.acme_two.row_bound", "3", "--rewards.acme-one.row-bound=4")
    assert [entry["options"]["row_bound"] for entry in found["rewards"]] == [4, 3]  # type: ignore[index]


def test_a_table_that_could_mean_either_is_refused_with_both_tables_and_flags(tester: RunTester) -> None:
    tester.run("train", run_of(tester, name="pair", options={"scale": 3.0}), "--dry-run").assert_refused(
        "run.toml, line",
        "algorithm.options.scale is an option of advantage estimator acme_est of rlcore-plugin-acme and loss acme_loss of rlcore-plugin",
        "write scale in [algorithm.estimator_options] or [algorithm.loss_options], or type --estimator.scale or --loss.scale",
    )


def test_the_table_of_the_loss_alone_takes_every_option_of_the_loss(tester: RunTester) -> None:
    run = run_of(tester, name="pair", loss_options={"scale": 3.0, "width": 9})
    found = config(tester, run)["algorithm"]
    assert (found["loss_options"], found["options"]["width"]) == ({"scale": 3.0}, 9)
    assert config(tester, run, "--loss.width", "8")["algorithm"]["options"]["width"] == 8
    said = {"widht": "did you mean 'width'", "depth": "is not an option of loss acme_loss"}
    for key, words in said.items():
        tester.write("b.toml", f"[algorithm.loss_options]\n{key} = 1\n")
        tester.run("train", run, "b.toml").assert_refused(f"b.toml, line 2: algorithm.loss_options.{key}", words)


def test_a_wrong_value_is_cited_where_it_was_written(tester: RunTester) -> None:
    run_of(tester)
    for key in ("scale", "width"):
        tester.write("b.toml", f'[algorithm]\n[algorithm.loss_options]\n{key} = "x"\n')
        tester.run("train", "run.toml", "b.toml").assert_refused("b.toml, line 3: algorithm.", f'{key} = "x" (loss acme_loss of')
    tester.run("train", "run.toml", "--loss.scale", "x").assert_refused("--loss.scale x: algorithm.loss_options.scale (loss acme_loss")


def test_one_option_in_two_tables_of_a_file_is_refused(tester: RunTester) -> None:
    run = run_of(tester, name="pair", options={"width": 1}, loss_options={"width": 2})
    tester.run("train", run).assert_refused(
        "algorithm.loss_options.width and algorithm.options.width are the same option, width of loss acme_loss", "keep one of them"
    )


def test_a_recipe_s_value_belongs_to_its_own_part(tester: RunTester) -> None:
    run = run_of(tester, name="of_loss")
    assert config(tester, run)["algorithm"]["options"]["scale"] == 5.0
    found = config(tester, run, "--estimator", "acme_est")["algorithm"]
    assert (found["estimator_options"], found["loss_options"]) == ({"scale": 1.0}, {"scale": 5.0})
    tester.run("train", run, "-a", "unclear").assert_refused("recipe unclear: algorithm.options.scale is an option of advantage estimator")


def test_a_short_flag_is_never_one_that_the_core_or_another_spelling_has(tester: RunTester) -> None:
    run = run_of(tester)
    found = config(tester, run, "--seed", "5", "--rewards.acme_one.seed", "6", "--no-shuffling")
    assert (found["run"]["seed"], found["rewards"][0]["options"]["seed"]) == (5, 6)  # type: ignore[index]
    assert found["algorithm"]["options"]["no_shuffling"] is True, "not the negation of the reward's option"


def test_show_algo_has_both_options_of_one_name(tester: RunTester) -> None:
    shown = json.loads(tester.run("show", "algo", "pair", "--json").assert_ok().stdout)
    scales = {option["path"]: option["default"] for option in shown["options"] if option["path"].endswith("scale")}
    assert scales == {"algorithm.estimator_options.scale": 1.0, "algorithm.loss_options.scale": 10.0}
    assert tomllib.loads(shown["toml"])["algorithm"]["loss_options"] == {"scale": 10.0}


COMMAND = """
from rlcore.api import CommandSpec, hookimpl
from rlcore.api.commands import Command, add_train_flags, train_flags
rlcore_api = "2.0"

class Cut(Command):
    def add_arguments(self, parser):
        add_train_flags(parser)
        parser.add_argument("files", nargs="*")
        parser.add_argument("--row-bound", type=int)

    def run(self, args):
        print(args.row_bound, sorted(train_flags(args)))
        return 0

@hookimpl
def rlcore_register_commands():
    return [CommandSpec(name="cut", target="rlcore_plugin_cut:Cut", summary="s")]
"""


def test_an_option_does_not_hide_a_command_s_own_flag_of_its_name(tester: RunTester) -> None:
    tester.plugins.install("cut", COMMAND)
    run_of(tester)
    assert tester.run("cut", "run.toml", "--row-bound", "3").assert_ok().stdout.strip() == "3 []"
    tester.run("cut", "run.toml", "--row_bound", "3").assert_refused("--row_bound is not an option of rlcore cut", "--row-bound")
    named = tester.run("cut", "run.toml", "--rewards.acme_one.row-bound", "3").assert_ok().stdout
    assert json.loads(named.partition("None ")[2].replace("'", '"')) == ["rewards.0.options.row_bound"]
