"""``rlcore show``: what it prints."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.show import show_config
from rlcore_plugin_tools.show.describe import describe

from rlcore.api import PluginKind
from rlcore.testing import RunTester

ACME = """
from rlcore.api import AlgorithmSpec, LossSpec, RewardSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_rewards():
    return [RewardSpec(name="acme", target="rlcore_plugin_acme.parts:Judge", config="rlcore_plugin_acme.parts:Options",
                       summary="Judges like Acme", source="Acme (1949)", requires=("gt_answer",), stop=("</answer>",), aliases=("coyote",))]

@hookimpl
def rlcore_register_losses():
    return [LossSpec(name="acme", target="rlcore_plugin_acme.parts:Loss", config="rlcore_plugin_acme.parts:Options", summary="A loss")]

@hookimpl
def rlcore_register_algorithms():
    return [AlgorithmSpec(name="acme", summary="Acme's recipe", estimator="group_mean", loss="clipped", notes="loss = anvil",
                          defaults={"algorithm.kl_coeff": (0.25, "Acme, table 1"), "sampling.num_generations": (16, ""),
                                    "algorithm.options.clip_eps_high": (0.28, "Acme, section 3"),
                                    "algorithm.filter_range": ((0.01, 0.99), "Acme, figure 2")})]
"""
PARTS = """
from enum import StrEnum
from typing import Literal
from pydantic import BaseModel, ConfigDict, Field

class Mode(StrEnum):
    A = "a"
    B = "b"

class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    key: str = Field(description="must be given")
    scale: float = Field(10.0, description='what a "right" answer earns')
    limit: int | None = None
    mode: Mode = Mode.A
    units: Literal["m", "ft"] = "m"
    weights: dict[str, float] = Field(default_factory=lambda: {"x y": 1.0})
    names: tuple[str, ...] = ("a", "b")

class Judge:
    pass

class Loss:
    pass
"""


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    """Sees the core, this plugin and Acme's alone."""
    tester = RunTester(tmp_path, in_process=True).with_only("rlcore-plugin-tools")
    tester.plugins.install("acme", ACME, files={"parts.py": PARTS})
    return tester


def _shown(tester: RunTester, *words: str) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(tester.run("show", *words, "--json").assert_ok().stdout)
    return described


def test_a_reward_in_json(tester: RunTester) -> None:
    shown = _shown(tester, "reward", "Coyote")
    assert {key: shown[key] for key in ("kind", "name", "aliases", "summary", "source", "owner", "version")} == {
        "kind": "reward",
        "name": "acme",
        "aliases": ["coyote"],
        "summary": "Judges like Acme",
        "source": "Acme (1949)",
        "owner": "rlcore-plugin-acme",
        "version": "1.0",
    }
    assert shown["properties"] == {
        "requires": ["gt_answer"],
        "gives_accuracy": True,
        "system_prompt": "",
        "stop": ["</answer>"],
        "full_value_option": "",
        "deadline": 10.0,
        "reads_tokens": False,
        "gold": "",
        "pure_check": False,
        "audit": "",
    }
    options = {option.pop("path"): option for option in shown["options"]}
    origin = "reward acme (rlcore-plugin-acme)"
    assert options["rewards.options.key"] == {
        "type": "str",
        "default": None,
        "required": True,
        "description": "must be given",
        "source": "you",
    }
    assert options["rewards.options.scale"]["description"] == 'what a "right" answer earns'
    assert {path.rpartition(".")[2]: (option["type"], option["default"]) for path, option in options.items()} == {
        "key": ("str", None),
        "scale": ("float", 10.0),
        "limit": ("int | none", None),
        "mode": ("'a' | 'b'", "a"),
        "units": ("'m' | 'ft'", "m"),
        "weights": ("dict[str, float]", {"x y": 1.0}),
        "names": ("tuple[str, …]", ["a", "b"]),
    }
    assert {option["source"] for path, option in options.items() if not path.endswith("key")} == {origin}


def test_the_toml_of_a_reward_can_be_pasted(tester: RunTester) -> None:
    assert tomllib.loads(_shown(tester, "reward", "acme")["toml"]) == {
        "rewards": [
            {
                "name": "acme",
                "weight": 1.0,
                "options": {"scale": 10.0, "mode": "a", "units": "m", "weights": {"x y": 1.0}, "names": ["a", "b"]},
            }
        ]
    }


def test_a_recipe_shows_every_default_and_where_it_comes_from(tester: RunTester) -> None:
    shown = _shown(tester, "algo", "ACME")
    assert {option["path"]: (option["default"], option["source"]) for option in shown["options"]} == {
        "algorithm.estimator": ("group_mean", "recipe acme"),
        "algorithm.loss": ("clipped", "recipe acme"),
        "algorithm.options.clip_eps_low": (0.2, "loss clipped (rlcore)"),
        "algorithm.options.clip_eps_high": (0.28, "recipe acme: Acme, section 3"),
        "algorithm.options.dual_clip": (None, "loss clipped (rlcore)"),
        "algorithm.kl_coeff": (0.25, "recipe acme: Acme, table 1"),
        "sampling.num_generations": (16, "recipe acme"),
        "algorithm.filter_range": ([0.01, 0.99], "recipe acme: Acme, figure 2"),
    }
    assert tomllib.loads(shown["toml"]) == {
        "algorithm": {
            "name": "acme",
            "estimator": "group_mean",
            "loss": "clipped",
            "kl_coeff": 0.25,
            "filter_range": [0.01, 0.99],
            "options": {"clip_eps_low": 0.2, "clip_eps_high": 0.28},
        },
        "sampling": {"num_generations": 16},
    }
    assert shown["properties"]["notes"] == "loss = anvil"


def test_a_recipe_shows_type_and_meaning_of_what_it_sets(tester: RunTester) -> None:
    """From the core's table of settings, from the options of its parts, and never the type of the value alone."""
    shown = {option["path"]: (option["type"], option["description"]) for option in _shown(tester, "algo", "acme")["options"]}
    assert shown["algorithm.estimator"] == ("str", "advantage estimator; auto: the recipe's")
    assert shown["algorithm.kl_coeff"] == ("float", "weight of the KL penalty; 0: no penalty")
    assert shown["sampling.num_generations"][0] == "int"
    assert shown["algorithm.filter_range"][0] == "tuple[float, float] | none"
    assert shown["algorithm.options.clip_eps_high"] == ("float", "how far it may rise above 1 before its gradient stops")


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # rich: a terminal, whatever it writes to
    monkeypatch.setenv("TERM", "xterm")


def printed(tester: RunTester, *words: str) -> str:
    """What it prints, without the codes for bold."""
    return re.sub(r"\x1b\[[0-9;]*m", "", tester.run("show", *words).assert_ok().stdout)


def words(text: str) -> set[str]:
    return set(text.replace(";", " ").split())


NOTES = """\
advantage   A_i = (r_i - mean(r)) / (std(r) + 1e-4), over the group of a prompt
overlong    a response that is longer than it should be counts as being at the limit, and
            keeps its place in the mean

Against GRPO: nothing but the anvil.

Where others differ:
- TRL drops the anvil from higher up than here, so that it is faster on arrival
  and louder.
- verl has none."""


def test_notes_are_a_block_of_their_own_before_the_settings(tester: RunTester) -> None:
    text = tester.run("show", "algo", "acme").assert_ok().stdout
    assert "\n\nFormula, and what differs from other conventions:\n\nloss = anvil\n\nsetting " in text
    assert "notes:" not in text


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_breaks_between_words_only(tester: RunTester, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    tester.plugins.install("acme", ACME.replace('notes="loss = anvil"', f"notes={NOTES!r}"), files={"parts.py": PARTS})
    on_terminal(monkeypatch, width)
    text = printed(tester, "algo", "acme").partition("To paste into run.toml")[0]
    lines = text.splitlines()
    heads = ("algo acme", "Formula, and", "algorithm.")
    assert max(len(line) for line in lines if not line.startswith(heads)) <= width
    assert words(text) >= words(f"{NOTES} {described_words(tester, 'acme')}")
    label = lines.index(next(line for line in lines if line.startswith("overlong")))
    assert lines[label + 1].startswith(" " * 12)
    item = lines.index(next(line for line in lines if line.startswith("- TRL")))
    assert lines[item + 1].startswith("  ")
    setting = lines.index("algorithm.kl_coeff = 0.25")
    assert lines[setting + 1].startswith("    float; weight of the KL")


def described_words(tester: RunTester, name: str) -> str:
    with tester.plugins as folder:
        options = describe(folder.discover(), PluginKind.ALGORITHM, name)["options"]
    return " ".join(f"{option['path']} {option['type']} {option['description']} {option['source']}" for option in options)


def test_a_wide_terminal_and_a_pipe_have_one_line_an_option(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    for wide in (False, True):
        if wide:
            on_terminal(monkeypatch, 250)
        (row,) = [line for line in printed(tester, "algo", "acme").splitlines() if line.startswith("algorithm.kl_coeff ")]
        assert row.split()[1:3] == ["float", "0.25"]
        assert row.endswith("recipe acme: Acme, table 1")


def test_in_words(tester: RunTester) -> None:
    text = tester.run("show", "loss", "acme").assert_ok().stdout
    for words in ("loss acme  (rlcore-plugin-acme 1.0)", "A loss", "(required)", "must be given", '[algorithm]\nloss = "acme"', "# key ="):
        assert words in text


def test_an_unpackaged_loss_is_shown_by_what_was_typed(tester: RunTester) -> None:
    mine = tester.write("my.py", 'def mine(logprobs, batch):\n    """Mine."""\n    return -logprobs\n')
    shown = _shown(tester, "loss", "./my.py:mine")
    assert (shown["name"], shown["summary"], shown["owner"]) == ("./my.py:mine", "Mine.", str(mine))
    assert tomllib.loads(shown["toml"]) == {"algorithm": {"loss": "./my.py:mine"}}


def test_an_unknown_name_is_refused_with_the_closest_match(tester: RunTester) -> None:
    tester.run("show", "reward", "acne").assert_refused("did you mean 'acme'")


def test_an_unknown_kind_gets_the_closest_match_and_a_kind_alone_its_names(tester: RunTester) -> None:
    said = tester.run("show", "runtim", "local").assert_refused().stderr
    assert said.startswith("error: rlcore show: 'runtim' is not a valid WHAT, did you mean 'runtime'; choose from reward, inference, ")
    said = tester.run("show", "loss").assert_refused().stderr
    assert said == "error: rlcore show loss needs a name: type one of acme, clipped\n"


def test_show_config_hands_every_argument_on(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[list[str]] = []
    monkeypatch.setattr(show_config, "run", lambda rest, registry: got.append(rest) or 7)
    assert tester.run("show", "config", "-tbs", "4", "a.toml", "--json", "--help").exit_code == 7
    assert got == [["-tbs", "4", "a.toml", "--json", "--help"]]


def test_the_capabilities_of_a_backend_are_facts_of_their_own(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    lines = tester.run("show", "inference", "fake").assert_ok().lines
    assert {"layouts: single, tensor", "sleeps: yes", "in flight: finish", "devices: cpu", "transfers: host"} <= set(lines)
    assert "reproducible: bitwise" in lines
    shown = tester.run("show", "training", "fake-pipeline", "--json").assert_ok().stdout
    assert json.loads(shown)["properties"]["dtypes"] == ["float32", "float64"]


def test_what_a_loss_leaves_open_is_not_said(tester: RunTester) -> None:
    lines = tester.run("show", "loss", "acme").assert_ok().lines
    assert "on policy: not said" in lines
    assert "sequence ratio: no" in lines
