"""``help`` of a public class fits a screen: its docstring and the methods that it documents, without those of ``dataclass`` or ``str``."""

from __future__ import annotations

import pickle
import pydoc
import re
from enum import Enum
from importlib import import_module
from pathlib import Path

import pytest

import rlcore.api
from rlcore.api import Outcome, RewardSpec, Score

SCREEN = 50
LONG = {
    "AdvantageEstimator", "AsyncReward", "Controller", "Correction", "Draw", "InferenceBackend", "Loss", "Objective", "OptimizerFactory",
    "PendingSave", "PluginKind", "Reward", "Tokenizer", "TrainingBackend",
}  # fmt: skip
"""Interfaces with that much to say, protocols, a tuple; and the kinds, two lines each."""
CLASSES = {name: found for name in rlcore.api.__all__ if isinstance(found := getattr(rlcore.api, name), type)}


def shown(found: type) -> str:
    return pydoc.render_doc(found, renderer=pydoc.plaintext)


def test_the_long_ones_are_few_and_long() -> None:
    assert {name for name, found in CLASSES.items() if len(shown(found).splitlines()) > SCREEN} == LONG


@pytest.mark.parametrize("name", sorted(set(CLASSES) - LONG))
def test_a_record_shows_its_docstring_and_its_methods(name: str) -> None:
    found = CLASSES[name]
    text = shown(found)
    assert (found.__doc__ or "").strip().partition("\n")[0] in text
    if not hasattr(found, "__abstractmethods__"):
        assert re.findall(r"^ \|  (__\w+__)\b", text, re.MULTILINE) == []


@pytest.mark.parametrize("page", sorted(path.stem for path in Path(rlcore.api.__file__).parent.glob("[a-z]*.py")))
def test_enums_and_errors_of_every_page_fit_a_screen(page: str) -> None:
    module = import_module(f"rlcore.api.{page}")
    found = [value for name in module.__all__ if isinstance(value := getattr(module, name), type) and issubclass(value, Enum | Exception)]
    assert [one.__name__ for one in found if one.__name__ not in LONG and len(shown(one).splitlines()) > SCREEN] == []


def test_members_of_enums_and_instances_are_listed_as_before() -> None:
    assert "TIMEOUT" in shown(Outcome)
    assert "capitalize" not in shown(Outcome)
    spec = RewardSpec(name="short", target="a:b", summary="s")
    assert {"deadline", "name"} <= set(dir(spec))
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert pickle.loads(pickle.dumps(Score(value=1.0))) == Score(value=1.0)
