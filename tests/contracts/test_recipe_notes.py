"""What ``rlcore show algo NAME`` owes its reader, of every registered recipe; a new one joins by being installed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.show.describe import describe

from rlcore.config.setting_table import core_settings
from rlcore.contracts.specs import AlgorithmSpec, PluginKind
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import RunTester

REGISTRY = Registry.discover()
RECIPES = REGISTRY.names(PluginKind.ALGORITHM)

every_recipe = pytest.mark.parametrize("name", RECIPES)


def recipe(name: str) -> AlgorithmSpec:
    spec = REGISTRY.spec(PluginKind.ALGORITHM, name)
    assert isinstance(spec, AlgorithmSpec)
    return spec


@every_recipe
def test_its_notes_say_what_differs_from_grpo_and_from_each_peer(name: str) -> None:
    """Where a peer has no such algorithm, that is what the notes say of it."""
    missing = [peer for peer in ("GRPO", "TRL", "verl", "OpenRLHF") if not re.search(rf"\b{peer}", recipe(name).notes)]
    assert missing == [], f"the notes of {name} do not mention {', '.join(missing)}: say how it differs there, or that there is none"


REMARKS = {
    "gpg": ("group of one", "over the whole generation batch", "the paper counts rollouts in groups without signal"),
    "maxrl": ("group of one", "max|r|/N is ours", "the clip is ours", "prime-rl drops it first"),
    "kl_cov": ("the ratio has no clip", "beyond 20 nats", "one per micro-batch there, one per batch here", "it is not kl_coeff"),
}
"""Differences that a reader who compares with the paper or a peer trips over, and that stood nowhere."""


@pytest.mark.parametrize("name", REMARKS)
def test_its_notes_say_where_its_convention_is_its_own(name: str) -> None:
    notes = " ".join(recipe(name).notes.partition("Where others differ:")[2].split())
    assert [remark for remark in REMARKS[name] if remark.lower() not in notes.lower()] == []


@every_recipe
def test_its_notes_begin_with_the_formula(name: str) -> None:
    """Lines of a label, spaces, and what it stands for; the loss is among them."""
    notes = recipe(name).notes
    assert all(len(line) <= 140 for line in notes.splitlines())
    labels = re.findall(r"^(\S+(?: \S+)?)\s{2,}\S", notes.partition("\n\n")[0], re.MULTILINE)
    assert {"advantage", "per token", "loss"} <= set(labels)


@every_recipe
def test_every_default_has_a_source_of_its_own(name: str) -> None:
    """A paper by number, a section, or whose default it is: never only the recipe's name."""
    named = r"arXiv \d{4}\.\d{5}|the authors' code|the ColossalAI trainer|\bours\b"
    unsourced = [path for path, (_, source) in recipe(name).defaults.items() if not re.search(named, source)]
    assert unsourced == []
    assert re.search(r"arXiv \d{4}\.\d{5}", recipe(name).source)


@every_recipe
def test_every_row_shown_has_type_description_and_source(name: str) -> None:
    options: list[dict[str, Any]] = describe(REGISTRY, PluginKind.ALGORITHM, name)["options"]
    assert {"algorithm.estimator", "algorithm.loss", *recipe(name).defaults} <= {option["path"] for option in options}
    for option in options:
        assert option["description"], f"{option['path']} has no description"
        assert option["source"], f"{option['path']} does not say where its default comes from"
        core = core_settings().get(option["path"])
        assert core is None or option["description"] == core.help
        assert not option["type"].startswith("typing."), option["type"]


@every_recipe
def test_what_is_printed_holds_all_of_it(name: str, tmp_path: Path) -> None:
    shown = RunTester(tmp_path, in_process=True).run("show", "algo", name).assert_ok().stdout
    spec = recipe(name)
    assert spec.notes.strip() in shown
    lines = shown.splitlines()
    for path, (value, source) in spec.defaults.items():
        (row,) = [line for line in lines if line.split()[:1] == [path]]
        assert json.dumps(value) in row
        assert row.endswith(f"recipe {spec.name}: {source}")
